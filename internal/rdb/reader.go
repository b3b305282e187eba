package rdb

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
)

// Reader reads a file as a stream. The checksum is at the end of the file, so damage may remain
// undetected until Next has returned io.EOF: if the file can be read twice, call Verify first. A
// Reader is safe for hostile input: the memory that it allocates is bounded by the number of bytes
// that it has read, times the factor by which a string can be compressed (maxExpansion).
type Reader struct {
	decoder
	version  int
	valkey   bool
	begun    bool
	err      error
	database int
	name     []byte // the key that was returned last
	fields   map[string]string

	// Returns is the name of fields that Next returns as records of the type Field, with their values as Bytes.
	Returns string
	// Libraries is the number of libraries of functions that were skipped, and ModuleParts the
	// number of sections with data of modules.
	Libraries, ModuleParts int
}

// NewReader returns a reader of a file.
func NewReader(r io.Reader) *Reader { return newReader(r, bufferBytes) }

func newReader(r io.Reader, bufferBytes int) *Reader {
	return &Reader{
		decoder: decoder{input: input{from: r, buf: make([]byte, bufferBytes)}},
		fields:  map[string]string{},
	}
}

// Offset returns the number of bytes of the file that have been read.
func (r *Reader) Offset() int64 { return r.offset() }

// Field returns a field about the file, such as "redis-ver". Fields precede keys, so they have been
// read when Next has returned the first key. The result is "" for an unknown field.
func (r *Reader) Field(name string) string { return r.fields[name] }

// Next returns the next key. At the end of the file, it verifies the checksum and that nothing
// follows, and returns io.EOF, or ErrNoChecksum if there is no checksum. Every other error is an
// *Error. After an error, Next returns the same error again.
func (r *Reader) Next() (rec Record, err error) {
	if r.err != nil {
		return Record{}, r.err
	}
	if !r.begun {
		r.begun = true
		err = r.header()
	}
	if err == nil {
		err = r.next(&rec)
	}
	if err != nil {
		r.err = err
		return Record{}, err
	}
	return rec, nil
}

func (r *Reader) header() error {
	p, err := r.take(headerBytes)
	if err != nil {
		return err
	}
	r.version, r.valkey, err = parseHeader(p)
	return err
}

// parseHeader reads the first 9 bytes of a file.
func parseHeader(p []byte) (version int, valkey bool, err error) {
	digits := len(magic)
	if string(p[:len(valkeyMagic)]) == valkeyMagic {
		valkey, digits = true, len(valkeyMagic)
	} else if string(p[:len(magic)]) != magic {
		return 0, false, fail(0, ErrMagic)
	}
	for _, digit := range p[digits:headerBytes] {
		if digit < '0' || digit > '9' {
			return 0, false, fail(0, ErrMagic)
		}
		version = 10*version + int(digit-'0')
	}
	if !known(version, valkey) {
		return 0, false, unknownVersion(int64(digits), version)
	}
	return version, valkey, nil
}

func unknownVersion(offset int64, version int) error {
	return fail(offset, fmt.Errorf("%w %d", ErrVersion, version))
}

func known(version int, valkey bool) bool {
	if valkey {
		return version == valkeyVersion
	}
	return version >= firstVersion && version <= lastVersion
}

func (r *Reader) next(rec *Record) error {
	rec.Expires = Never
	for {
		begin := r.offset()
		section, err := r.readByte()
		if err != nil {
			return err
		}
		if section < firstOpcode {
			rec.Database = r.database
			return r.key(rec, section, begin)
		}
		switch section {
		case opEnd:
			return r.finish()
		case opField:
			var label string
			if label, err = r.field(rec); err == nil && label != "" && label == r.Returns {
				return nil
			}
		case opMilliseconds:
			var at uint64
			at, err = r.readEight()
			rec.Expires = int64(at)
		case opSeconds:
			rec.Expires, err = r.seconds()
		default:
			err = r.section(section, begin)
		}
		if err != nil {
			return err
		}
	}
}

func (r *Reader) seconds() (milliseconds int64, err error) {
	p, err := r.take(4)
	if err != nil {
		return 0, err
	}
	return int64(int32(binary.LittleEndian.Uint32(p))) * 1000, nil
}

// section reads a section that has no effect on the next key.
func (r *Reader) section(section byte, begin int64) (err error) {
	switch section {
	case opDatabase:
		var n uint64
		if n, err = r.readLength(); err == nil && n > math.MaxInt32 {
			err = malformed(begin, "database %d", n)
		}
		r.database = int(n)
	case opSizes:
		err = r.skipParts([]part{aLength, aLength})
	case opSlot:
		err = r.skipParts([]part{aLength, aLength, aLength})
	case opIdle:
		_, err = r.readLength()
	case opFrequency:
		_, err = r.readByte()
	case opLibrary:
		r.Libraries++
		err = r.skipString()
	case opModule:
		r.ModuleParts++
		_, err = r.skipModule()
	default:
		err = malformed(begin, "%#02x is neither a section nor a type that is known", section)
	}
	return err
}

// The bounds of the fields that a Reader keeps. Redis before 7.0 stored scripts as fields, which
// can be many and long.
const (
	maxFields     = 64
	maxFieldBytes = 256
)

// field reads a field, and returns its name. If it is to be returned, it sets rec.
func (r *Reader) field(rec *Record) (label string, err error) {
	name, err := r.readString()
	if err != nil {
		return "", err
	}
	label = string(name.bytes[:min(len(name.bytes), maxFieldBytes)])
	value, err := r.readString()
	if err != nil {
		return "", err
	}
	if label == r.Returns {
		*rec = Record{Database: r.database, Type: Field, Expires: Never, Bytes: value.bytes}
		return label, nil
	}
	content := string(value.bytes[:min(len(value.bytes), maxFieldBytes)])
	if value.isInteger {
		content = strconv.FormatInt(value.integer, 10)
	}
	if len(r.fields) < maxFields {
		r.fields[label] = content
	}
	return label, nil
}

func (r *Reader) key(rec *Record, stored byte, begin int64) error {
	name, err := r.readString()
	if err != nil {
		return err
	}
	r.name = append(r.name[:0], name.bytes...)
	if name.isInteger {
		r.name = strconv.AppendInt(r.name, name.integer, 10)
	}
	rec.Key = r.name
	return r.value(rec, stored, r.valkey, begin)
}

func (d *decoder) value(rec *Record, stored byte, valkey bool, begin int64) error {
	if stored != typeString {
		var err error
		rec.Type, rec.Module, err = d.skipValue(stored, valkey, begin)
		return err
	}
	t, err := d.readString()
	rec.Bytes, rec.Integer, rec.IsInteger = t.bytes, t.integer, t.isInteger
	return err
}

// finish verifies the checksum, and that nothing follows it.
func (r *Reader) finish() error {
	begin := r.offset()
	r.updateSum()
	sum := r.sum
	if r.version >= checksumVersion {
		want, err := r.readEight()
		switch {
		case err != nil:
			return err
		case want == 0:
			sum = 0
		case want != sum:
			return fail(begin, ErrChecksum)
		}
	}
	end := r.offset()
	ended, err := r.atEnd()
	switch {
	case err != nil:
		return err
	case !ended:
		return malformed(end, "more follows the end of the file (commands, if it is an append-only file)")
	case r.version < checksumVersion || sum == 0:
		return ErrNoChecksum
	}
	return io.EOF
}

// Verify reads a whole file and compares its checksum, without decoding the sections. It takes less
// than a second per gigabyte. It returns ErrNoChecksum if the file has none.
func Verify(from io.Reader) error { return verify(from, bufferBytes) }

func verify(from io.Reader, bufferBytes int) error {
	const sumBytes = 8
	in := input{from: from, buf: make([]byte, bufferBytes)}
	header, err := in.take(headerBytes)
	if err != nil {
		return err
	}
	version, _, err := parseHeader(header)
	if err != nil {
		return err
	}
	if version < checksumVersion {
		return ErrNoChecksum
	}
	for { // until only the last 8 bytes of the file are unread
		if err = in.fill(sumBytes + 1); err != nil {
			break
		}
		in.at = in.end - sumBytes
	}
	if e := err.(*Error); e.Err != io.ErrUnexpectedEOF || in.end-in.at < sumBytes {
		return err
	}
	in.updateSum()
	switch binary.LittleEndian.Uint64(in.buf[in.at:]) {
	case 0:
		return ErrNoChecksum
	case in.sum:
		return nil
	}
	return fail(in.offset(), ErrChecksum)
}
