// Package journal writes groups of changes to a disk. A crash leaves each group whole or not at
// all. The package knows files, frames and passes; only its caller knows what an entry means.
//
// A pass is the group of changes since the previous pass. A segment is a file of passes. A pass
// consists of frames with checksums. Each frame records the last pass that was known to be on
// the disk when the frame was written. After a crash, these records show how to treat a bad frame:
//
//   - If a later frame records that the pass of the bad frame was on the disk, the disk has lost
//     data. This is a Fault, which an operator must resolve.
//   - Otherwise the write was interrupted. The tail after the last complete pass is torn, and is
//     truncated: no client was told that it is on the disk. Its frames may have reached the disk in
//     any order, or in parts.
//
// After the last pass before a shutdown, an empty pass (Writer.Close) records that the last pass is
// on the disk.
//
// # A segment
//
// All numbers are big-endian, all checksums are CRC-32C (Castagnoli). A segment begins with
//
//	 0  magic      8 bytes  "cljrnl2\n", in which the digit is the version of the format
//	 8  length     4 bytes  of this header: 88
//	12  program   20 bytes  the version of the program that wrote the segment, padded with zeros
//	32  folder     8 bytes  random: the same in all segments of a folder
//	40  mark       8 bytes  random: a sync marker, with which each frame of this segment begins
//	48  number     8 bytes  of the segment
//	56  first      8 bytes  the number of its first pass
//	64  synced     8 bytes  the last pass that was known to be on the disk, in an earlier segment
//	72  previous   8 bytes  the mark of the previous segment; 0 if there is none
//	80  sum        4 bytes  of the headers of all frames of the previous segment, up to its last pass
//	84  sum        4 bytes  of bytes 0 to 83
//
// In every later version, the first three fields and the last are the same, so that a program that
// does not know the version can tell it from damage. Version 1 has neither length, program nor
// folder, and neither previous nor its sum; its checksum is at byte 40.
//
// Frames follow:
//
//	 0  mark     8 bytes  the segment's
//	 8  pass     8 bytes  the number of the pass: the previous pass's plus one
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
// Only a file that is not longer than a header may be torn there; a bad header of a longer file is a
// Fault. In version 1, the header was on the disk before the first frame was written. In version 2,
// the caller gives the file its name when its first pass is on the disk.
//
// A segment may repeat the last pass of the previous segment, if the sync of that pass has failed
// and it is unknown whether the pass is on the disk. The link to the previous segment shows this;
// see Summary.Before.
package journal
