package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// blockingWriter is a log that accepts a line only when the test allows it.
type blockingWriter struct {
	called  chan struct{}
	results chan error
	text    bytes.Buffer
}

func newBlockingWriter() *blockingWriter {
	return &blockingWriter{called: make(chan struct{}), results: make(chan error)}
}

func (d *blockingWriter) Write(b []byte) (int, error) {
	d.called <- struct{}{}
	if err := <-d.results; err != nil {
		return 0, err
	}
	return d.text.Write(b)
}

// open accepts the next lines.
func (d *blockingWriter) open(lines int) {
	for range lines {
		<-d.called
		d.results <- nil
	}
}

func lostLine(lost int) []byte { return fmt.Appendf(nil, "lost %d\n", lost) }

const closeTimeout = time.Minute

// TestQueueNeverBlocks checks that a queue whose log blocks keeps maxLines lines, and that a line
// in their place says how many are missing.
func TestQueueNeverBlocks(t *testing.T) {
	d := newBlockingWriter()
	q := NewQueue(d, lostLine)
	fmt.Fprintln(q, "first")
	<-d.called // it is being written, and its batch is closed
	for range maxLines + 7 {
		fmt.Fprintln(q, "more")
	}
	d.results <- nil
	d.open(maxLines + 1)
	fmt.Fprintln(q, "last")
	d.open(1)
	q.Close(closeTimeout)
	assert.Equal(t, "first\n"+strings.Repeat("more\n", maxLines)+"lost 7\nlast\n", d.text.String())
	fmt.Fprintln(q, "too late")
}

// TestQueueBytesAreBounded checks the limit in bytes, and that after a dropped line no line is
// queued until the loss has been reported.
func TestQueueBytesAreBounded(t *testing.T) {
	d := newBlockingWriter()
	q := NewQueue(d, lostLine)
	fmt.Fprintln(q, "first")
	<-d.called
	for range 3 {
		_, _ = q.Write(bytes.Repeat([]byte("x"), maxBytes/2))
		fmt.Fprintln(q)
	}
	d.results <- nil
	d.open(3)
	q.Close(closeTimeout)
	assert.Equal(t, "first\n"+strings.Repeat("x", maxBytes/2)+"\nlost 4\n", d.text.String())

	d = newBlockingWriter()
	q = NewQueue(d, lostLine)
	_, _ = q.Write(make([]byte, maxBytes+1))
	d.open(1)
	q.Close(closeTimeout)
	assert.Equal(t, "lost 1\n", d.text.String())
}

// TestQueueCopies checks that a caller may reuse the buffer that it has written.
func TestQueueCopies(t *testing.T) {
	d := newBlockingWriter()
	q := NewQueue(d, lostLine)
	line := []byte("line\n")
	_, _ = q.Write(line)
	copy(line, "xxxx")
	d.open(1)
	q.Close(closeTimeout)
	assert.Equal(t, "line\n", d.text.String())
}

// TestCloseTimeout checks that Close does not wait for a blocked log after the timeout.
func TestCloseTimeout(t *testing.T) {
	d := newBlockingWriter()
	q := NewQueue(d, lostLine)
	fmt.Fprintln(q, "first")
	<-d.called
	q.Close(0)
	assert.Empty(t, d.text.String())
	d.results <- nil
	<-q.done
}

// fullDisk is a disk with so many free bytes.
type fullDisk struct {
	bytes.Buffer
	free int
}

func (f *fullDisk) Write(b []byte) (int, error) {
	n, err := len(b), error(nil)
	if n > f.free {
		n, err = f.free, errors.New("no space left on device")
	}
	f.free -= n
	f.Buffer.Write(b[:n])
	return n, err
}

// TestFullDisk checks that lines that cannot be written are counted, and that the next line does
// not continue a partly written line.
func TestFullDisk(t *testing.T) {
	disk := &fullDisk{free: 7}
	w := lossyWriter{out: disk, notice: lostLine}
	for _, line := range []string{"one\n", "two and more\n", "three\n"} {
		w.write([]byte(line))
	}
	w.reportLost()
	assert.Equal(t, "one\ntwo", disk.String())
	disk.free = 100
	w.write([]byte("four\n"))
	w.reportLost()
	assert.Equal(t, "one\ntwo\nlost 2\nfour\n", disk.String())
}

// TestLongAndBinaryValues checks that values are truncated, and that a record is one line whatever
// bytes it contains, in both formats.
func TestLongAndBinaryValues(t *testing.T) {
	for _, format := range []Format{Text, JSON} {
		var out bytes.Buffer
		log, q := New(&out, format, slog.LevelInfo)
		name, huge := "a\r\n\"b\x00\xff\u2028\x1b[2J", strings.Repeat("\x01", 1<<20)
		log.Info(huge, "error", errors.New(huge), "stack", huge, "name", name, "peer", []byte(name))
		log.Debug("nothing")
		q.Close(closeTimeout)
		line := out.String()
		require.Equal(t, 1, strings.Count(line, "\n"), "%.200s", line)
		require.Less(t, len(line), 7*3*maxValueBytes)
		for _, control := range "\r\x00\x01\x1b" {
			require.NotContains(t, line, string(control))
		}
		require.Contains(t, line, "(1048576 bytes)")
	}
	var out bytes.Buffer
	log, q := New(&out, JSON, slog.LevelInfo)
	log.Info("x", "n", 1, "in", time.Second)
	q.Close(closeTimeout)
	var entry map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &entry))
	require.EqualValues(t, 1, entry["n"])
	require.Equal(t, "1s", entry["in"])
}

// TestNoticeFormat checks that the line that reports lost lines has the format of the log.
func TestNoticeFormat(t *testing.T) {
	_, q := New(io.Discard, JSON, slog.LevelInfo)
	var entry map[string]any
	require.NoError(t, json.Unmarshal(q.notice(5), &entry))
	require.EqualValues(t, 5, entry["lines"])
	require.Equal(t, "WARN", entry["level"])
	q.Close(closeTimeout)
}
