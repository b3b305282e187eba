package weblog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
)

// MaxLine is the length of the longest line, in bytes.
const MaxLine = 64 << 10

// maxWindow bounds the memory that a zstd file may ask for.
const maxWindow = 128 << 20

// file is a file of a log.
type file struct {
	name  string
	lines *bufio.Reader
	close func()
	line  int // number of the latest line
	first [][]byte

	next    Line // the next request, with a copy of its Subject
	hasNext bool
}

// tooLong replaces a line that is too long. No format has such a line.
var tooLong = []byte("\x00")

// open opens a file, which may be compressed, or the standard input if its name is "-". It counts the bytes that it
// reads.
func open(name string, stdin io.Reader, read *atomic.Int64) (*file, error) {
	var raw io.Reader = stdin
	f := &file{name: name, close: func() {}}
	if name == "-" {
		f.name = "standard input"
	} else {
		opened, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		raw, f.close = opened, func() { opened.Close() }
	}
	if err := f.decompress(bufio.NewReaderSize(&counting{raw, read}, MaxLine+1)); err != nil {
		f.close()
		return nil, &FileError{f.name, 0, err}
	}
	return f, nil
}

// decompress makes reads decompress the file, if its first bytes say that it is compressed.
func (f *file) decompress(in *bufio.Reader) error {
	head, _ := in.Peek(4) // an error comes again when it is read
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			return err
		}
		f.lines = bufio.NewReaderSize(z, MaxLine+1)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return err
		}
		closeFile := f.close
		f.lines, f.close = bufio.NewReaderSize(z, MaxLine+1), func() { z.Close(); closeFile() }
	default:
		f.lines = in
	}
	return nil
}

// FileError is an error while a file is read.
type FileError struct {
	Name string
	Line int
	Err  error
}

func (e *FileError) Error() string { return e.Name + ": " + e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// peek returns the first lines, by which the format is guessed. readLine will return them again.
func (f *file) peek(count int) (lines [][]byte, err error) {
	for len(f.first) < count {
		line, err := f.nextLine()
		if err != nil || line == nil {
			return f.first, err
		}
		f.first = append(f.first, bytes.Clone(line))
	}
	return f.first, nil
}

// readLine returns the next line without its line end; nil after the last line. The line is valid until the next call.
// In place of a line that is too long, it returns tooLong.
func (f *file) readLine() (line []byte, err error) {
	if len(f.first) > 0 {
		line, f.first = f.first[0], f.first[1:]
	} else if line, err = f.nextLine(); line == nil || err != nil {
		return nil, err
	}
	f.line++
	return line, nil
}

func (f *file) nextLine() (line []byte, err error) {
	line, err = f.lines.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = f.lines.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, &FileError{f.name, f.line, err}
		}
		return tooLong, nil
	case errors.Is(err, io.EOF) && len(line) == 0:
		return nil, nil
	case err != nil && !errors.Is(err, io.EOF):
		return nil, &FileError{f.name, f.line, err}
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), nil
}

// counting counts the bytes that are read.
type counting struct {
	from io.Reader
	read *atomic.Int64
}

func (c *counting) Read(p []byte) (n int, err error) {
	n, err = c.from.Read(p)
	c.read.Add(int64(n))
	return n, err
}
