package rdb

import (
	"encoding/binary"
	"fmt"
	"io"
)

// input is a buffered stream of bytes, with the current position and the checksum of the bytes
// read.
type input struct {
	from   io.Reader // nil if buf contains all bytes
	buf    []byte
	at     int // buf[at:end] has not been read
	end    int
	base   int64 // offset of buf in the file
	sum    uint64
	summed int // number of bytes of buf that sum includes
}

// offset returns the number of bytes read.
func (in *input) offset() int64 { return in.base + int64(in.at) }

// fail returns an error with an offset.
func fail(offset int64, err error) error { return &Error{Offset: offset, Err: err} }

// malformed returns an ErrMalformed with a reason and an offset.
func malformed(offset int64, format string, args ...any) error {
	return fail(offset, fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...)))
}

// fill makes at least n unread bytes available in buf. n must not exceed the size of buf. Slices of
// buf that were returned before are no longer valid.
func (in *input) fill(n int) error {
	if in.end-in.at >= n {
		return nil
	}
	if in.from == nil {
		return fail(in.base+int64(in.end), io.ErrUnexpectedEOF)
	}
	in.updateSum()
	in.base += int64(in.at)
	in.end = copy(in.buf, in.buf[in.at:in.end])
	in.at, in.summed = 0, 0
	for empty := 0; in.end < n; empty++ {
		got, err := in.from.Read(in.buf[in.end:])
		in.end += got
		switch {
		case in.end >= n:
		case err == io.EOF:
			return fail(in.base+int64(in.end), io.ErrUnexpectedEOF)
		case err != nil:
			return fail(in.base+int64(in.end), err)
		case got > 0:
			empty = 0
		case empty > 100:
			return fail(in.base+int64(in.end), io.ErrNoProgress)
		}
	}
	return nil
}

// updateSum updates the checksum with the bytes that have been read.
func (in *input) updateSum() {
	in.sum = checksum(in.sum, in.buf[in.summed:in.at])
	in.summed = in.at
}

// atEnd reports whether no bytes follow.
func (in *input) atEnd() (bool, error) {
	err := in.fill(1)
	if e, ok := err.(*Error); ok && e.Err == io.ErrUnexpectedEOF {
		return true, nil
	}
	return false, err
}

func (in *input) readByte() (byte, error) {
	if in.at == in.end {
		if err := in.fill(1); err != nil {
			return 0, err
		}
	}
	b := in.buf[in.at]
	in.at++
	return b, nil
}

// take reads n bytes, which must not exceed the size of buf. They are valid until the next call.
func (in *input) take(n int) ([]byte, error) {
	if in.end-in.at < n {
		if err := in.fill(n); err != nil {
			return nil, err
		}
	}
	in.at += n
	return in.buf[in.at-n : in.at], nil
}

// skip skips n bytes.
func (in *input) skip(n uint64) error {
	for n > uint64(in.end-in.at) {
		n -= uint64(in.end - in.at)
		in.at = in.end
		if err := in.fill(1); err != nil {
			return err
		}
	}
	in.at += int(n)
	return nil
}

// takeLong reads n bytes, which are valid until the next call. If they do not fit in buf, they are
// appended to scratch as they arrive, so that a wrong length does not cause an allocation of that
// size.
func (in *input) takeLong(n int, scratch *[]byte) ([]byte, error) {
	if n <= len(in.buf) {
		return in.take(n)
	}
	*scratch = (*scratch)[:0]
	for n > 0 {
		if err := in.fill(1); err != nil {
			return nil, err
		}
		part, _ := in.take(min(n, in.end-in.at))
		*scratch = append(*scratch, part...)
		n -= len(part)
	}
	return *scratch, nil
}

// readLengthOrEncoding reads a length, or the first byte of a string in another encoding: encoded
// is true then, and n is that byte.
func (in *input) readLengthOrEncoding() (n uint64, encoded bool, err error) {
	begin := in.offset()
	first, err := in.readByte()
	if err != nil {
		return 0, false, err
	}
	var p []byte
	switch first & encoded8 {
	case 0:
		return uint64(first), false, nil
	case length14:
		second, err := in.readByte()
		return uint64(first&0x3f)<<8 | uint64(second), false, err
	case encoded8:
		return uint64(first), true, nil
	}
	switch first {
	case length32:
		if p, err = in.take(4); err != nil {
			return 0, false, err
		}
		return uint64(binary.BigEndian.Uint32(p)), false, nil
	case length64:
		if p, err = in.take(8); err != nil {
			return 0, false, err
		}
		return binary.BigEndian.Uint64(p), false, nil
	}
	return 0, false, malformed(begin, "no length begins with %#02x", first)
}

func (in *input) readLength() (uint64, error) {
	begin := in.offset()
	n, encoded, err := in.readLengthOrEncoding()
	if err == nil && encoded {
		err = malformed(begin, "an encoded string is in the place of a length")
	}
	return n, err
}

// storedString is a string in its stored form: an integer or bytes.
type storedString struct {
	bytes     []byte // valid until the next call
	integer   int64
	isInteger bool
}

// decoder reads strings.
type decoder struct {
	input
	longBuf   []byte // for strings that do not fit in buf
	unpackBuf []byte // for strings that were compressed
	maxBytes  uint64 // length of the longest string that is accepted; 0 for maxString
}

// readString reads a string. Its bytes are valid until the next call.
func (d *decoder) readString() (t storedString, err error) {
	begin := d.offset()
	n, encoded, err := d.readLengthOrEncoding()
	switch {
	case err != nil:
		return t, err
	case encoded && n == encodedLZ:
		t.bytes, err = d.readCompressed(begin)
		return t, err
	case encoded:
		t.isInteger = true
		t.integer, err = d.readInteger(byte(n), begin)
		return t, err
	}
	if err := d.checkLength(n, begin); err != nil {
		return t, err
	}
	t.bytes, err = d.takeLong(int(n), &d.longBuf)
	return t, err
}

// checkLength refuses a string that is too long.
func (d *decoder) checkLength(n uint64, begin int64) error {
	switch {
	case n > maxString:
		return malformed(begin, "a string of %d bytes: the maximum is %d", n, maxString)
	case d.maxBytes > 0 && n > d.maxBytes:
		return fail(begin, ErrTooLong)
	}
	return nil
}

func (d *decoder) readInteger(encoding byte, begin int64) (int64, error) {
	size := 1 << (encoding - encoded8)
	if encoding > encoded32 {
		return 0, malformed(begin, "%#02x is not the encoding of a string", encoding)
	}
	p, err := d.take(size)
	switch {
	case err != nil:
		return 0, err
	case size == 1:
		return int64(int8(p[0])), nil
	case size == 2:
		return int64(int16(binary.LittleEndian.Uint16(p))), nil
	}
	return int64(int32(binary.LittleEndian.Uint32(p))), nil
}

func (d *decoder) readCompressed(begin int64) ([]byte, error) {
	short, err := d.readLength()
	if err != nil {
		return nil, err
	}
	long, err := d.readLength()
	if err != nil {
		return nil, err
	}
	if short > maxString || long > maxString || long > short*maxExpansion {
		return nil, malformed(begin, "a string of %d bytes, compressed to %d", long, short)
	}
	if err := d.checkLength(long, begin); err != nil {
		return nil, err
	}
	packed, err := d.takeLong(int(short), &d.longBuf)
	if err != nil {
		return nil, err
	}
	if uint64(cap(d.unpackBuf)) < long {
		d.unpackBuf = make([]byte, 0, long)
	}
	d.unpackBuf, err = unpack(d.unpackBuf[:0], packed, int(long))
	if err != nil {
		return nil, malformed(begin, "%v", err)
	}
	return d.unpackBuf, nil
}

// skipString skips a string of any length.
func (d *decoder) skipString() error {
	begin := d.offset()
	n, encoded, err := d.readLengthOrEncoding()
	switch {
	case err != nil:
		return err
	case encoded && n == encodedLZ:
		if n, err = d.readLength(); err != nil {
			return err
		}
		if _, err = d.readLength(); err != nil {
			return err
		}
	case encoded:
		_, err = d.readInteger(byte(n), begin)
		return err
	}
	return d.skip(n)
}
