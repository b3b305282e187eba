package logging

import (
	"os"
	"sync"
)

// File is a log file that can be opened again, for programs that rotate logs by renaming files.
type File struct {
	path string

	mu   sync.Mutex
	file *os.File
}

// OpenFile opens a file to append to, and creates it if it is missing.
func OpenFile(path string) (*File, error) {
	f := &File{path: path}
	return f, f.Reopen()
}

// Reopen opens the file of that name, and closes the file that was open. If it cannot be opened, the file
// that was open remains in use.
func (f *File) Reopen() error {
	const mode = 0o644
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		_ = f.file.Close() // an error cannot be reported: its lines are lost, and so are later ones
	}
	f.file = file
	return nil
}

// Write writes to the file.
func (f *File) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Write(line)
}
