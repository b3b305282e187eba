package weblog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// The bounds of a log.
const (
	MaxFiles    = 1000    // files of a log, which are open at once
	MaxDisorder = 3600    // seconds
	maxFaults   = 3       // bad lines that are shown
	maxShown    = 120     // bytes of a bad line that are shown
	checkEvery  = 1 << 12 // lines between two checks of the context
)

// Log is a log of one or more files.
type Log struct {
	Parser *Parser
	// Keep says which requests are visited; nil means all.
	Keep func(l *Line) bool
	// MaxBytes bounds the memory of subjects; 0 means no bound. PerSubject is what the caller needs for each in
	// addition.
	MaxBytes, PerSubject int64

	Lines, Bad, Late, Filtered int64
	Faults                     []Fault // the first bad lines
	Size                       int64   // of the files in bytes; 0 if it is not known
	Read                       atomic.Int64

	files    []*file
	subjects names
	bytes    int64
	hold     order
}

// Fault is a line that could not be read.
type Fault struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Why  string `json:"why"`
	Text string `json:"text"`
}

// TooManySubjectsError is the error of a log with more subjects than fit in memory.
type TooManySubjectsError struct{ Subjects int }

func (e *TooManySubjectsError) Error() string {
	return fmt.Sprintf("%d subjects do not fit in --maxmemory: take a part of them, with --sample 1/16", e.Subjects)
}

// Open opens the files of a log, and finds its format.
func Open(names []string, stdin io.Reader, o Options) (l *Log, err error) {
	if len(names) > MaxFiles {
		return nil, fmt.Errorf("there are %d files, and at most %d are allowed: pass them through zcat and -", len(names), MaxFiles)
	}
	l = &Log{subjects: newNames()}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	for _, name := range names {
		f, err := open(name, stdin, &l.Read)
		if err != nil {
			return l, err
		}
		l.files = append(l.files, f)
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			l.Size += info.Size()
		}
	}
	var lines [][]byte
	for _, f := range l.files { // the first may be empty
		if lines, err = f.peek(maxSample); err != nil || len(lines) > 0 {
			break
		}
	}
	if err == nil {
		l.Parser, err = NewParser(o, lines)
	}
	return l, err
}

// Close closes the files.
func (l *Log) Close() {
	for _, f := range l.files {
		f.close()
	}
}

// Files returns the number of files.
func (l *Log) Files() int { return len(l.files) }

// Subjects returns the number of subjects.
func (l *Log) Subjects() int { return l.subjects.count }

// Subject returns a subject by its number. It must not be changed.
func (l *Log) Subject(n int32) []byte { return l.subjects.at(n) }

// Each calls visit with all requests, in the order of their times. Lines of a file may be out of order by up to
// disorder seconds.
func (l *Log) Each(ctx context.Context, disorder int64, visit func(r *Request) error) (err error) {
	l.hold = *newOrder(disorder, len(l.files), visit)
	for i, f := range l.files {
		if err := l.advance(f, int32(i)); err != nil {
			return err
		}
	}
	for n := 0; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			break
		}
		i := l.earliest()
		if i < 0 {
			break
		}
		if err := l.take(i); err != nil {
			return err
		}
	}
	err = l.hold.flush()
	l.Late = l.hold.late
	return err
}

// earliest returns the index of the file whose next request is the earliest; -1 if there is none.
func (l *Log) earliest() (index int) {
	index = -1
	for i, f := range l.files {
		if f.hasNext && (index < 0 || f.next.unix < l.files[index].next.unix) {
			index = i
		}
	}
	return index
}

// take passes on the next request of a file.
func (l *Log) take(index int) error {
	f := l.files[index]
	number, err := l.number(f.next.Subject, f.next.Missing)
	if err != nil {
		return err
	}
	r := Request{Time: f.next.unix, Second: f.next.unix / second, Quantity: f.next.Quantity, Subject: number,
		Status: int16(f.next.Status), Whole: f.next.whole, Missing: f.next.Missing, file: int32(index)}
	if err := l.hold.add(&r); err != nil {
		return err
	}
	return l.advance(f, int32(index))
}

// advance reads the next request of a file.
func (l *Log) advance(f *file, index int32) error {
	text := f.next.Subject[:0]
	for f.hasNext = false; ; {
		line, err := f.readLine()
		if err != nil || line == nil {
			return err
		}
		if len(bytes.TrimSpace(line)) == 0 || isHeader(l.Parser.format, line) {
			continue
		}
		l.Lines++
		if fault := l.Parser.Parse(line, &f.next); fault != "" {
			l.addFault(f, line, fault)
			continue
		}
		if l.Keep != nil && !l.Keep(&f.next) {
			l.Filtered++
			continue
		}
		f.next.Subject = append(text, f.next.Subject...)
		f.hasNext = true
		return nil
	}
}

// isHeader reports whether a line is the header of CSV, which each file may have.
func isHeader(f *format, line []byte) bool {
	c, ok := f.reader.(*csvLines)
	return ok && bytes.Equal(line, c.header)
}

func (l *Log) addFault(f *file, line []byte, why string) {
	if l.Bad++; len(l.Faults) < maxFaults {
		if bytes.Equal(line, tooLong) {
			why, line = fmt.Sprintf("longer than %d bytes", MaxLine), nil
		}
		l.Faults = append(l.Faults, Fault{f.name, f.line, why, string(line[:min(len(line), maxShown)])})
	}
}

// number returns the number of a subject. All requests without a field of their subject share one.
func (l *Log) number(subject []byte, missing bool) (int32, error) {
	if missing {
		subject = subject[:0]
	}
	if n, known := l.subjects.find(subject); known {
		return n, nil
	}
	l.bytes += 2*int64(len(subject)) + perName + l.PerSubject
	if n := l.subjects.count; n == maxNames || l.MaxBytes > 0 && l.bytes > l.MaxBytes {
		return 0, &TooManySubjectsError{n}
	}
	return l.subjects.add(subject), nil
}
