package persist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"cellserver/internal/store"
)

// lockEvery is the time between two attempts to lock a folder.
const lockEvery = 100 * time.Millisecond

// LockedError means that another process uses the folder.
type LockedError struct {
	Dir    string
	Holder string // the process, as the lock file describes it
}

func (e *LockedError) Error() string { return fmt.Sprintf("%s is in use by %s", e.Dir, e.Holder) }

// errHeld means that another process holds the lock.
var errHeld = errors.New("the lock is held")

// folderLock is the lock of a folder: flock on a file. It works between containers that share a
// volume, unlike a process ID in a file, and the system releases it when the process ends for any
// reason. The file is not removed then: a process that waits would lock a file without a name.
type folderLock struct {
	dir     directory
	machine store.Machine
	file    *os.File // nil if it is not held
}

// ensureHeld locks the folder again if the lock file was removed or replaced, because the lock does
// not protect the folder then. If so, relocked is true: another process may have used the folder
// meanwhile.
func (l *folderLock) ensureHeld() (relocked bool, err error) {
	if l.file != nil && l.dir.checkIdentity(lockName, osFile{l.file}) == nil {
		return false, nil
	}
	return true, l.lock()
}

func (l *folderLock) lock() error {
	file, err := openRegular(l.dir.path(lockName), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	err = tryLock(file, false)
	switch holder := readHolder(file); {
	case errors.Is(err, errHeld):
		err = &LockedError{Dir: string(l.dir), Holder: holder}
	case err == nil && holder != noHolder && !strings.HasPrefix(holder, holderBegins):
		err = fmt.Errorf("%s was not written by cellserver: move it to another folder, or choose another folder", file.Name())
	}
	if err != nil {
		file.Close()
		return err
	}
	l.release()
	l.file = file
	writeHolder(file, l.machine.Read())
	return nil
}

func (l *folderLock) release() {
	if l.file != nil {
		l.file.Close()
	}
}

// wait locks the folder. While another process holds the lock, it logs which one, and tries again
// after each pause, up to the timeout. Then it returns a *LockedError.
func (l *folderLock) wait(ctx context.Context, timeout time.Duration, log *slog.Logger, pause <-chan time.Time) error {
	logged := ""
	for attempts := int64(timeout / lockEvery); ; attempts-- {
		err := l.lock()
		var locked *LockedError
		if !errors.As(err, &locked) || attempts <= 0 {
			return err
		}
		if locked.Holder != logged {
			log.Warn("waiting for another process that uses the folder",
				"dir", string(l.dir), "by", locked.Holder, "timeout", timeout)
			logged = locked.Holder
		}
		select {
		case <-pause:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readHolder returns the content of a lock file, which describes the process that holds it.
func readHolder(lock *os.File) string {
	text := make([]byte, 1<<10)
	n, _ := lock.ReadAt(text, 0)
	if holder := strings.TrimSpace(string(text[:n])); holder != "" {
		return holder
	}
	return noHolder
}

const (
	noHolder     = "an unknown process"
	holderBegins = "process "
)

// writeHolder writes to a lock file which process holds it. The text is only for messages, so
// errors are ignored, such as a full disk.
func writeHolder(lock *os.File, now store.Reading) {
	host, _ := os.Hostname()
	started := time.Unix(0, now.Wall).UTC().Format(time.RFC3339)
	text := fmt.Sprintf(holderBegins+"%d on host %s, started %s\n", os.Getpid(), host, started)
	if lock.Truncate(0) == nil {
		lock.WriteAt([]byte(text), 0)
	}
}
