// Package persist keeps the content of a store in a folder, so that it survives a restart.
//
// Once a second, a pass appends to a journal the current states of the keys that have changed since
// the previous pass. (The journal does not contain commands.) When the journal has become large, a
// snapshot of all keys replaces it. Only the store knows what the entries of a pass or a snapshot
// mean (package entry). Their files are segments of package journal, with checksums.
//
// A change on its way to the disk passes through these files: passes.go writes a pass, segments.go
// begins the next segment of the journal, and compaction.go replaces segments by a snapshot. On its
// way back, scan.go finds the files to be loaded, and load.go applies them.
//
// After SIGTERM nothing is lost. After a crash or a power failure, the changes since the last
// synced pass began are lost. These are the changes of at most a second and the duration of a pass,
// unless the disk fails; Status shows that. Of each pass, either everything is loaded or nothing.
//
// # The folder
//
//	lock                            names the process that uses the folder, and is locked by it
//	snapshot-<segment>-<pass>       replaces all segments before that segment; valid with passes up to that pass
//	journal-<segment>               a segment: passes
//	*.tmp                           files that are being written
//	dump.rdb                        the file of SAVE, in Redis's format; it is not loaded at startup
//	*.broken                        copies of damaged files; see Check
//
// Segments are numbered from 1. A process begins a new one when it starts, and when it begins a
// snapshot. A folder without a snapshot has all segments.
//
// # What a crash leaves
//
// At startup, a process loads the snapshot with the largest number, and then the segments from that
// number on, as long as each one continues the one before. Files are written in an order that keeps
// this correct after a crash at any point, even if only some of the data and of the file names that
// were not synced have reached the disk:
//
//   - A segment is complete, and synced, before the next one is created. It is written to a temporary
//     file, which is renamed when its first pass is synced. The folder is synced before another pass
//     is written. So only the last segment can end with an incomplete pass, and no client was told that
//     this pass is on the disk. The next process truncates it before it begins another segment.
//   - A snapshot is written to a temporary file while keys change, so its keys are of different
//     instants. It is valid only with the passes that were written meanwhile, which are in the
//     segment that was begun for it, and with one pass that began after the last key was read. When
//     the snapshot and this pass are synced, the file is renamed. Its name contains the number of the
//     pass.
//   - When this name is on the disk, because the folder has been synced, older segments and
//     snapshots are removed, before another segment is begun. Files that a crash leaves are removed
//     at the next startup.
//
// A segment contains the identity of the segment before it and the position where that segment ended
// (journal.Link). A snapshot contains the identity of the segment that was begun for it. So if a folder was
// copied and both copies were used, their files are not taken for one journal. If files are older than the
// snapshot, and a segment was begun since, no crash can have left these files: they come from a backup.
//
// Damage that a crash cannot explain is a Fault: the disk has changed or lost data that it had
// confirmed, or a file was removed. A process refuses to start with such a folder, because limits
// would be lifted without notice. Check describes and repairs it.
//
// # If the disk fails
//
// Clients never wait for the disk, and the process continues. If a write fails, for example because
// the disk is full, the entries of the pass are kept in memory, and the next pass writes them
// again. If a sync fails, it is unknown what is on the disk, so the next pass writes the entries into
// another segment. That segment begins with the same pass number, and with a link to the pass before: a
// startup ignores everything that the disk may have of the first attempt.
//
// Passes are lost if these entries become too large, or cannot be written ten times, or if earlier
// passes were not synced either (Options.NoSync). After that, the first pass of the next segment omits
// a number, which the journal regards as a gap: the segment is not loaded at startup, until a snapshot
// has replaced everything before it.
//
// # Time
//
// Instants in the folder are by the store's clock, which counts elapsed time. Each pass has a
// stamp, which contains the time of all clocks. The clock of the next process continues at the last
// stamp, plus the time that has passed since. This is measured by the time since boot or, if the
// machine has been booted since, by the wall clock.
package persist
