// Package persist keeps the content of a store in a folder, so that it survives a restart.
//
// Once a second, a pass writes what has changed since the previous one: not the commands, but what
// the keys hold now. When the file of the passes has become large, a snapshot of all keys replaces
// it. What a pass and a snapshot contain is known only to the store; their files are segments of
// package journal, with checksums.
//
// After SIGTERM nothing is lost. After a crash, or if the power fails, what is lost is what has
// changed since the last synced pass began: at most a second and the length of a pass, unless the
// disk fails, which the Status shows. A pass is found as a whole or not at all.
//
// # The folder
//
//	lock                            names the process that uses the folder, and is locked by it
//	snapshot-<segment>-<pass>       replaces all segments before that segment; valid with passes up to that pass
//	journal-<segment>               a segment: passes
//	snapshot.tmp, rdb.tmp           files that are being written
//	dump.rdb                        what SAVE writes, in Redis's format; a start does not read it
//	*.broken                        copies of damaged files; see Check
//
// Segments are numbered from 1. A process begins a new one when it starts, and when it begins a
// snapshot. A folder without a snapshot has all segments.
//
// # What a crash leaves
//
// A start uses the snapshot with the largest number, and the segments from that number on, as long
// as each continues the one before. The steps of writing are in an order that makes this right
// after a crash between any two of them, also if of the files and the names that were not synced
// only some have reached the disk:
//
//   - A segment is complete, and synced, before the next one is created. The folder is synced before
//     the first pass is written into a new segment. So only the last segment can end with an
//     incomplete pass, which was not promised to any client. It is cut off before the next segment
//     begins.
//   - A snapshot is written to a temporary file. Its keys are of different instants; the passes of
//     that time, which are in the segment that was begun for it, make them those of one instant. It
//     gets its name when it is synced, and so is a pass that began after its last key was read. The
//     name says which pass that is.
//   - Older segments and snapshots are removed when the folder has been synced with that name. Those
//     that a crash leaves are removed at the next start.
//
// What a crash cannot explain is a Fault: the disk has changed or lost what it had confirmed, or a
// file was removed. A start refuses such a folder, because limits would be lifted without notice.
// Check describes and repairs it.
//
// # If the disk fails
//
// Clients never wait for the disk, and the process goes on. If a write fails, because the disk is
// full, what the pass contained is kept in memory and written again by the next one. If it becomes
// too much, or if a sync fails, after which it is unknown what is on the disk, passes are lost. Then
// a new segment begins, whose first pass leaves out a number. The journal regards that as a gap: a
// start does not use the segment, until a snapshot has replaced everything before it.
//
// # Time
//
// Instants in the folder are by the store's clock, which counts elapsed time. Each pass carries a
// stamp of all clocks. The clock of the next process continues at the last stamp plus the time that
// has passed: by the time since the boot, or after another boot by the wall clock.
package persist
