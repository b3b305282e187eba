package rdb

import (
	"encoding/binary"
)

// footerBytes is the size of the footer of a payload: the version and the checksum.
const footerBytes = 2 + 8

// AppendDump appends the reply to DUMP for a string, in the version of Redis 7.0.
func AppendDump(dst, value []byte) []byte {
	begin := len(dst)
	dst = appendLength(append(dst, typeString), uint64(len(value)))
	return appendFooter(append(dst, value...), begin)
}

// AppendIntegerDump is like AppendDump, for an integer.
func AppendIntegerDump(dst []byte, n int64) []byte {
	begin := len(dst)
	return appendFooter(appendInteger(append(dst, typeString), n), begin)
}

func appendFooter(dst []byte, begin int) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, Version)
	return binary.LittleEndian.AppendUint64(dst, checksum(0, dst[begin:]))
}

// ReadDump decodes a payload of RESTORE. The record has a type and, if that is String, a value,
// which may be a slice of the payload. Every error is an *Error. Redis has the same message for
// ErrVersion and ErrChecksum: "DUMP payload version or checksum are wrong".
func ReadDump(payload []byte) (Record, error) { return ReadDumpLimit(payload, maxString) }

// ReadDumpLimit is like ReadDump, but returns ErrTooLong for a string of more than maxBytes. It
// allocates no memory for such a string.
func ReadDumpLimit(payload []byte, maxBytes int) (rec Record, err error) {
	end := len(payload) - footerBytes
	if end < 0 {
		return rec, fail(int64(len(payload)), ErrChecksum)
	}
	version := int(binary.LittleEndian.Uint16(payload[end:]))
	valkey := version == valkeyVersion
	if !known(version, valkey) {
		return rec, unknownVersion(int64(end), version)
	}
	if checksum(0, payload[:end+2]) != binary.LittleEndian.Uint64(payload[end+2:]) {
		return rec, fail(int64(end+2), ErrChecksum)
	}
	d := decoder{input: input{buf: payload[:end:end], end: end}, maxBytes: uint64(maxBytes)}
	rec.Expires = Never
	stored, err := d.readByte()
	if err != nil {
		return Record{}, err
	}
	if err = d.value(&rec, stored, valkey, 0); err == nil && d.at != end {
		err = malformed(int64(d.at), "more follows the value")
	}
	if err != nil {
		return Record{}, err
	}
	return rec, nil
}

// DumpSize estimates the cost of ReadDump. It returns the length of the string in a payload, in
// bytes, according to the header of the string; 0 for other types. The header may be wrong, but
// ReadDump returns an error for a string that is longer than its header says.
func DumpSize(payload []byte) int {
	if len(payload) == 0 || payload[0] != typeString {
		return 0
	}
	in := input{buf: payload[1:], end: len(payload) - 1}
	n, encoded, err := in.readLengthOrEncoding()
	switch {
	case err != nil:
		return 0
	case !encoded:
		return int(min(n, uint64(len(payload))))
	case n != encodedLZ:
		return maxIntegerBytes
	}
	if _, err = in.readLength(); err == nil {
		n, err = in.readLength()
	}
	if err != nil {
		return 0
	}
	return int(min(n, uint64(len(payload)*maxExpansion)))
}
