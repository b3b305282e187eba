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
	Holder string // what the lock file says about it
}

func (e *LockedError) Error() string { return fmt.Sprintf("%s is in use by %s", e.Dir, e.Holder) }

// errHeld means that another process holds the lock.
var errHeld = errors.New("the lock is held")

// lockFolder locks a folder. It waits for another process that holds the lock, and logs which one
// that is. The lock belongs to the open file, so it also works between containers that share a
// volume, and ends with the process however that ends. The file stays: a process that waits for it
// must not lock a file that has no name any more.
func lockFolder(ctx context.Context, dir directory, wait time.Duration, log *slog.Logger,
	pause <-chan time.Time) (*os.File, error) {
	lock, err := os.OpenFile(dir.path(lockName), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	logged := ""
	for attempts := int64(wait/lockEvery) + 1; ; {
		if err = tryLock(lock); !errors.Is(err, errHeld) {
			break
		}
		holder := readHolder(lock)
		err = &LockedError{Dir: string(dir), Holder: holder}
		if attempts--; attempts == 0 {
			break
		}
		if holder != logged {
			log.Warn("waiting for another process that uses the folder", "dir", string(dir), "by", holder, "timeout", wait)
			logged = holder
		}
		select {
		case <-pause:
		case <-ctx.Done():
			lock.Close()
			return nil, ctx.Err()
		}
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// readHolder returns what a lock file says about the process that holds it.
func readHolder(lock *os.File) string {
	text := make([]byte, 1<<10)
	n, _ := lock.ReadAt(text, 0)
	if holder := strings.TrimSpace(string(text[:n])); holder != "" {
		return holder
	}
	return "an unknown process"
}

// writeHolder writes into a lock file which process holds it. It is only for messages, so it does
// not matter if the disk is full.
func writeHolder(lock *os.File, now store.Reading) {
	host, _ := os.Hostname()
	started := time.Unix(0, now.Wall).UTC().Format(time.RFC3339)
	text := fmt.Sprintf("process %d on host %s, started %s\n", os.Getpid(), host, started)
	if lock.Truncate(0) == nil {
		lock.WriteAt([]byte(text), 0)
	}
}
