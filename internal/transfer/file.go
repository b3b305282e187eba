package transfer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"cellserver/internal/form"
	"cellserver/internal/hold"
	"cellserver/internal/limit"
	"cellserver/internal/rdb"
	"cellserver/internal/resp"
)

// fileSource reads an RDB file.
type fileSource struct {
	file *os.File
	name string
	size int64
	at   atomic.Int64
	read int // the number of libraries of functions that were read
}

// openFile opens an RDB file and reads all of it, so that an import of a damaged file writes
// nothing. It reads the file twice. First it compares the checksum. Then it verifies the structure,
// because a file that is followed by zeros has a right checksum too. openFile writes a warning to
// warn if the file has no checksum.
func openFile(name string, warn io.Writer) (*fileSource, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer
		return nil, fmt.Errorf("%s is not a regular file; an RDB file is read twice, so it cannot come from a pipe", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	s := &fileSource{file: f, name: name, size: info.Size()}
	err = rdb.Verify(f)
	if errors.Is(err, rdb.ErrNoChecksum) {
		fmt.Fprintf(warn, "%s has no checksum: damage may remain undetected\n", name)
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	} else {
		err = s.each(func(*rdb.Record) error { return nil })
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// each calls visit with each record.
func (s *fileSource) each(visit func(rec *rdb.Record) error) error {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r := rdb.NewReader(s.file)
	r.Returns = hold.Field
	for {
		rec, err := r.Next()
		switch {
		case err == io.EOF, errors.Is(err, rdb.ErrNoChecksum):
			s.read = r.Libraries
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", s.name, err)
		}
		s.at.Store(r.Offset())
		if rec.Type == rdb.Field {
			if rec.Key, rec.Bytes, err = hold.ReadField(rec.Bytes); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		if err := visit(&rec); err != nil {
			return err
		}
	}
}

func (s *fileSource) progress() float64 { return float64(s.at.Load()) / float64(max(s.size, 1)) }

func (s *fileSource) libraries() int { return s.read }

func (s *fileSource) holdsLeft() int64 { return 0 }

func (s *fileSource) close() { s.file.Close() }

// outputFile is a file that gets its name when it is complete.
type outputFile struct {
	*os.File
	name string
}

// createFile creates a file, which must not exist unless replace is set. If it is a symbolic link,
// the link's target is replaced.
func createFile(name string, replace bool) (*outputFile, error) {
	if name == "" {
		return nil, errors.New("the name of the file is empty")
	}
	if _, err := os.Lstat(name); err == nil {
		if !replace {
			return nil, fmt.Errorf("%s exists; --replace replaces it", name)
		}
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return nil, err
		}
		if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
			return nil, errors.Join(err, fmt.Errorf("%s is not a regular file, and is not replaced", name))
		}
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp") // with mode 0600
	if err != nil {
		return nil, err
	}
	return &outputFile{f, name}, nil
}

// abort removes the temporary file, unless complete has renamed it.
func (f *outputFile) abort() {
	f.Close()
	os.Remove(f.Name())
}

// abortAtSignal removes the file if a signal ends the process, until stop is called.
func (f *outputFile) abortAtSignal() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s, ok := <-signals
		if !ok {
			return
		}
		f.abort()
		signal.Reset(s) // now the signal ends the process, so that its parent sees which signal it was
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Signal(s)
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

// complete syncs the file, renames it and syncs the folder.
func (f *outputFile) complete() error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), f.name); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(f.name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// fileDestination writes an RDB file.
type fileDestination struct {
	out      *rdb.Writer
	database int
	content  []byte
	report   *report
}

func newFileDestination(to io.Writer, r *report) *fileDestination {
	return &fileDestination{out: rdb.NewWriter(to), database: -1, report: r}
}

func (d *fileDestination) put(it *item) error {
	if it.holds != nil {
		return errors.New("only a server's folder has open holds to export")
	}
	if it.database != d.database {
		d.database = it.database
		if err := d.out.Database(it.database, 0, 0); err != nil {
			return err
		}
	}
	d.report.written(it.state != nil)
	d.content = it.appendContent(d.content[:0])
	if it.state != nil && it.state.Kind == limit.Throttle { // in the format of redis-cell
		d.content = form.AppendTAT(d.content[:0], it.state.TAT)
	}
	if n, ok := resp.ParseInt(d.content); ok {
		return d.out.Integer(it.key, n, it.expires)
	}
	return d.out.Bytes(it.key, d.content, it.expires)
}

func (d *fileDestination) close() error { return d.out.Close() }
