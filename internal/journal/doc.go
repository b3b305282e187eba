// Package journal writes changes to a disk so that each group of them survives a crash as a whole
// or not at all. It knows files, frames and passes; only its caller knows what an entry means.
//
// A pass is the group of changes since the previous pass. It is applied as a whole, or not at all.
// A segment is a file of passes, which consist of frames with checksums. A pass begins only when
// the previous one has been written, and records the last pass that was known to be on the disk by
// then. After a crash, this record decides how to treat a bad frame:
//
//   - If a later frame records that the pass of the bad frame was on the disk, the disk has lost
//     data. That is a Fault, which an operator must resolve.
//   - If no later frame does, the write was interrupted. The tail after the last complete pass is
//     torn, and is cut off: no client was promised that it is stored. Its frames may have reached
//     the disk in any order, or in parts.
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
// The entries of the caller follow. Each entry is in one frame.
//
// Segments are numbered, and passes are numbered across all segments: see Summary.Joins.
//
// The header of a segment is on the disk before its first frame is written. So a file that is not
// longer than a header may be torn, but a bad header of a longer file is a fault.
package journal
