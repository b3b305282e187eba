package transfer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"cellserver/internal/form"
	"cellserver/internal/rdb"
	"cellserver/internal/resp"
)

// fileSource reads an RDB file.
type fileSource struct {
	file *os.File
	name string
	size int64
	at   atomic.Int64
}

// openFile opens an RDB file and reads all of it, so that nothing is written if it is damaged: first
// for its checksum, then for its structure, because a file with zeros after its end has the right
// checksum too. openFile reports on warn if the file has no checksum.
func openFile(name string, warn io.Writer) (*fileSource, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	s := &fileSource{file: f, name: name}
	info, err := f.Stat()
	if err == nil {
		s.size = info.Size()
		err = rdb.Verify(f)
	}
	if errors.Is(err, rdb.ErrNoChecksum) {
		fmt.Fprintf(warn, "%s has no checksum: it is not known whether its bytes have changed\n", name)
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
	for {
		rec, err := r.Next()
		switch {
		case err == io.EOF, errors.Is(err, rdb.ErrNoChecksum):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", s.name, err)
		}
		s.at.Store(r.Offset())
		if err := visit(&rec); err != nil {
			return err
		}
	}
}

func (s *fileSource) progress() float64 { return float64(s.at.Load()) / float64(max(s.size, 1)) }

func (s *fileSource) close() { s.file.Close() }

// newFile is a file that appears under its name when it is complete.
type newFile struct {
	*os.File
	name string
}

// createFile creates a file, which must not exist unless it may be replaced.
func createFile(name string, replace bool) (*newFile, error) {
	if _, err := os.Stat(name); err == nil && !replace {
		return nil, fmt.Errorf("%s exists; --replace replaces it", name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp") // of mode 0600
	if err != nil {
		return nil, err
	}
	return &newFile{f, name}, nil
}

// abort removes the file, unless it is complete.
func (f *newFile) abort() {
	f.Close()
	os.Remove(f.Name())
}

// complete syncs the file, renames it and syncs the folder.
func (f *newFile) complete() error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
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
	if it.database != d.database {
		d.database = it.database
		if err := d.out.Database(it.database, 0, 0); err != nil {
			return err
		}
	}
	d.report.written(it.state != nil)
	d.content = it.content(d.content[:0])
	if it.state != nil && it.state.Kind == form.Throttle { // as redis-cell writes it
		d.content = form.AppendTAT(d.content[:0], it.state.TAT)
	}
	if n, ok := resp.ParseInt(d.content); ok {
		return d.out.Integer(it.key, n, it.expires)
	}
	return d.out.Bytes(it.key, d.content, it.expires)
}

func (d *fileDestination) close() error { return d.out.Close() }
