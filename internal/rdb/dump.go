package rdb

import (
	"encoding/binary"
)

// footerBytes is the size of the end of a payload: the version and the checksum.
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
// which may be a slice of the payload. Every error is an *Error. For ErrVersion and ErrChecksum,
// Redis has one message: "DUMP payload version or checksum are wrong".
func ReadDump(payload []byte) (rec Record, err error) {
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
	d := decoder{input: input{buf: payload[:end:end], end: end}}
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
