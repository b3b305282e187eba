// Package journal writes groups of changes to a disk. A crash leaves each group whole or not at
// all. The package knows files, frames and passes; only its caller knows what an entry means.
//
// A pass is the group of changes since the previous pass. A segment is a file of passes. A pass
// consists of frames with checksums, each of which records the last pass that was known to be on
// the disk when the frame was written. After a crash, these records show how to treat a bad frame:
//
//   - If a later frame records that the pass of the bad frame was on the disk, the disk has lost
//     data. This is a Fault, which an operator must resolve.
//   - Otherwise the write was interrupted. The tail after the last complete pass is torn, and is
//     truncated: no client was told that it is on the disk. Its frames may have reached the disk in
//     any order, or in parts.
//
// The last pass before a shutdown is followed by an empty one (Writer.Close), which records that it
// is on the disk.
//
// # A segment
//
// All numbers are big-endian, all checksums are CRC-32C (Castagnoli). A segment begins with
//
//	 0  magic    8 bytes  "cljrnl1\n"
//	 8  mark     8 bytes  random: a sync marker, with which each frame of this segment begins
//	16  number   8 bytes  of the segment
//	24  first    8 bytes  the number of its first pass
//	32  synced   8 bytes  the last pass that was known to be on the disk, in an earlier segment
//	40  sum      4 bytes  of bytes 0 to 39
//
// Frames follow:
//
//	 0  mark     8 bytes  the segment's
//	 8  pass     8 bytes  the number of the pass, one more than that of the previous pass
//	16  synced   8 bytes  the last pass that was known to be on the disk
//	24  part     4 bytes  the number of the frame in its pass, from 0; the upper bit is set in the last
//	28  length   4 bytes  of the payload
//	32  sum      4 bytes  of the payload
//	36  sum      4 bytes  of bytes 0 to 35
//	40  payload
//
// The payload of part 0 begins with a Stamp, the time at which the pass began:
//
//	 0  boot     16 bytes  the identifier of the machine's boot
//	16  uptime    8 bytes  nanoseconds since that boot, CLOCK_BOOTTIME
//	24  wall      8 bytes  Unix nanoseconds
//	32  clock     8 bytes  nanoseconds on the store's clock, to which the instants in entries refer
//
// The entries of the caller follow. Each entry is in one frame.
//
// Segments are numbered, and passes are numbered across all segments; see Summary.CheckNext.
//
// The header of a segment is on the disk before its first frame is written. A file that is not
// longer than a header may therefore be torn, but a bad header of a longer file is a Fault.
package journal
