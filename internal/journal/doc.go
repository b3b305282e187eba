// Package journal is how changes reach a disk so that a crash cannot make half of them. It knows
// files, frames and passes; what an entry means is for its caller.
//
// A pass is what has changed since the pass before. It is applied whole, or not at all. Passes stand
// in a segment, which is a file, one after the other, in frames that have checksums. A pass begins
// only when the one before has been written, and says which passes were known to be on the disk by
// then. After a crash that decides what a bad frame is:
//
//   - If a later frame says that the bad frame's pass was on the disk, the disk has lost it. That is
//     a Fault: something must be done by a person.
//   - If none does, writing was interrupted. The tail from the last whole pass on is torn, and is cut
//     off: no client was promised that it would be there. Its frames may have reached the disk in any
//     order, or in parts.
//
// A last, empty pass at shutdown (Writer.Close) therefore protects the pass before it.
//
// # A segment
//
// All numbers are big-endian, all checksums are CRC-32C (Castagnoli). A segment begins with
//
//	 0  magic    8 bytes  "cljrnl1\n"
//	 8  mark     8 bytes  random; it begins each frame of this segment, and no other's
//	16  number   8 bytes  of the segment
//	24  first    8 bytes  the number of its first pass
//	32  synced   8 bytes  the last pass that was known to be on the disk, in a segment before
//	40  sum      4 bytes  of bytes 0 to 39
//
// and goes on with frames:
//
//	 0  mark     8 bytes  the segment's
//	 8  pass     8 bytes  the number of the pass, one more than that of the pass before
//	16  synced   8 bytes  the last pass that was known to be on the disk
//	24  part     4 bytes  the number of the frame in its pass, from 0; the upper bit says that it is the last
//	28  length   4 bytes  of the payload
//	32  sum      4 bytes  of the payload
//	36  sum      4 bytes  of bytes 0 to 35
//	40  payload
//
// The payload of part 0 begins with a Stamp, which says when the pass was made:
//
//	 0  boot     16 bytes  the identifier of the machine's boot
//	16  uptime    8 bytes  nanoseconds since that boot, CLOCK_BOOTTIME
//	24  wall      8 bytes  Unix nanoseconds
//	32  clock     8 bytes  the same moment on the store's clock, by which instants in entries are
//
// Then come entries, which are the caller's. No entry is in two frames.
//
// Segments are numbered, and passes are counted through all of them: see Summary.Joins.
//
// A segment's header is on the disk before its first frame is written. So a file that is no longer
// than a header may be torn, and in one that is longer a bad header is a fault.
package journal
