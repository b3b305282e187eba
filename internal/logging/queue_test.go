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

// door is a log that takes a line only when the test lets it, and says when it was asked to.
type door struct {
	asked chan struct{}
	let   chan error
	text  bytes.Buffer
}

func newDoor() *door { return &door{asked: make(chan struct{}), let: make(chan error)} }

func (d *door) Write(b []byte) (int, error) {
	d.asked <- struct{}{}
	if err := <-d.let; err != nil {
		return 0, err
	}
	return d.text.Write(b)
}

// open lets the next lines pass.
func (d *door) open(lines int) {
	for range lines {
		<-d.asked
		d.let <- nil
	}
}

func lostLine(lost int) []byte { return fmt.Appendf(nil, "lost %d\n", lost) }

const patience = time.Minute

// A queue whose log stalls never waits; it holds so many lines and no more, and says at their
// place how many are missing.
func TestAQueueNeverWaits(t *testing.T) {
	d := newDoor()
	q := NewQueue(d, lostLine)
	fmt.Fprintln(q, "first")
	<-d.asked // it is being written, and its batch is closed
	for range maxLines + 7 {
		fmt.Fprintln(q, "more")
	}
	d.let <- nil
	d.open(maxLines + 1)
	fmt.Fprintln(q, "last")
	d.open(1)
	q.Close(patience)
	assert.Equal(t, "first\n"+strings.Repeat("more\n", maxLines)+"lost 7\nlast\n", d.text.String())
	fmt.Fprintln(q, "too late")
}

// Bytes are bounded, too; and once something is missing, nothing is queued before it is said.
func TestAQueueIsBounded(t *testing.T) {
	d := newDoor()
	q := NewQueue(d, lostLine)
	fmt.Fprintln(q, "first")
	<-d.asked
	for range 3 {
		_, _ = q.Write(bytes.Repeat([]byte("x"), maxBytes/2))
		fmt.Fprintln(q)
	}
	d.let <- nil
	d.open(3)
	q.Close(patience)
	assert.Equal(t, "first\n"+strings.Repeat("x", maxBytes/2)+"\nlost 4\n", d.text.String())

	d = newDoor()
	q = NewQueue(d, lostLine)
	_, _ = q.Write(make([]byte, maxBytes+1))
	d.open(1)
	q.Close(patience)
	assert.Equal(t, "lost 1\n", d.text.String())
}

// A caller may use its bytes again.
func TestAQueueCopies(t *testing.T) {
	d := newDoor()
	q := NewQueue(d, lostLine)
	line := []byte("line\n")
	_, _ = q.Write(line)
	copy(line, "xxxx")
	d.open(1)
	q.Close(patience)
	assert.Equal(t, "line\n", d.text.String())
}

// The end waits for a log that stalls no longer than it is told.
func TestTheEndDoesNotWaitForAStalledLog(t *testing.T) {
	d := newDoor()
	q := NewQueue(d, lostLine)
	fmt.Fprintln(q, "first")
	<-d.asked
	q.Close(0)
	assert.Empty(t, d.text.String())
	d.let <- nil
	<-q.ended
}

// full is a disk on which there is room for so many bytes.
type full struct {
	bytes.Buffer
	room int
}

func (f *full) Write(b []byte) (int, error) {
	n, err := len(b), error(nil)
	if n > f.room {
		n, err = f.room, errors.New("no space left on device")
	}
	f.room -= n
	f.Buffer.Write(b[:n])
	return n, err
}

// What cannot be written is counted, and a line that was torn off keeps a line of its own.
func TestAFullDisk(t *testing.T) {
	disk := &full{room: 7}
	w := lossy{out: disk, notice: lostLine}
	for _, line := range []string{"one\n", "two and more\n", "three\n"} {
		w.write([]byte(line))
	}
	w.say()
	assert.Equal(t, "one\ntwo", disk.String())
	disk.room = 100
	w.write([]byte("four\n"))
	w.say()
	assert.Equal(t, "one\ntwo\nlost 2\nfour\n", disk.String())
}

// Values are cut at a bound, in both formats, and each line is one: whatever bytes it was made of.
func TestLinesAreWhole(t *testing.T) {
	for _, format := range []Format{Text, JSON} {
		var out bytes.Buffer
		log, q := New(&out, format, slog.LevelInfo)
		name, huge := "a\r\n\"b\x00\xff\u2028\x1b[2J", strings.Repeat("\x01", 1<<20)
		log.Info(huge, "error", errors.New(huge), "stack", huge, "name", name, "peer", []byte(name))
		log.Debug("nothing")
		q.Close(patience)
		line := out.String()
		require.Equal(t, 1, strings.Count(line, "\n"), "%.200s", line)
		require.Less(t, len(line), 7*3*maxValue)
		for _, control := range "\r\x00\x01\x1b" {
			require.NotContains(t, line, string(control))
		}
		require.Contains(t, line, "(1048576 bytes)")
	}
	var out bytes.Buffer
	log, q := New(&out, JSON, slog.LevelInfo)
	log.Info("x", "n", 1, "in", time.Second)
	q.Close(patience)
	var entry map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &entry))
	require.EqualValues(t, 1, entry["n"])
	require.EqualValues(t, time.Second, entry["in"])
}

// The line about what is missing is a line of the log's format.
func TestTheNoticeIsInTheLogsFormat(t *testing.T) {
	_, q := New(io.Discard, JSON, slog.LevelInfo)
	var entry map[string]any
	require.NoError(t, json.Unmarshal(q.notice(5), &entry))
	require.EqualValues(t, 5, entry["lines"])
	require.Equal(t, "WARN", entry["level"])
	q.Close(patience)
}
