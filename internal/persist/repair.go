package persist

import (
	"errors"
	"io"
	"slices"

	"cellserver/internal/journal"
)

// repair makes a damaged folder loadable, without the parts that cannot be read, and returns its
// contents then. It keeps a copy of each file that it changes, with a name that ends with
// ".broken". If it fails or is interrupted, the folder is still damaged, and repair can be called
// again.
func repair(in files, c *contents) (*contents, error) {
	for c.fault != nil {
		if err := repairFault(in, c); err != nil {
			return nil, err
		}
		if err := in.sync(); err != nil {
			return nil, err
		}
		var err error
		if c, err = scan(in); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// repairFault removes one fault. The next scan may find another.
func repairFault(in files, c *contents) error {
	// The last segment is renamed first, so that a crash leaves no gap between the others.
	for _, s := range slices.Backward(c.afterFault) {
		if err := quarantine(in, s.name); err != nil {
			return err
		}
	}
	switch c.fault.kind {
	case damagedSegment:
		return truncateAtFault(in, &c.segments[len(c.segments)-1])
	case olderFiles:
		for _, name := range c.replaced {
			if err := quarantine(in, name); err != nil {
				return err
			}
		}
	case damagedSnapshot:
		return quarantine(in, c.snapshot.name)
	case snapshotTooEarly: // its name must not require passes that are lost
		return in.rename(c.snapshot.name, snapshotName(c.snapshot.segment, c.lastPass()))
	}
	return nil
}

// quarantine renames a file that cannot be used.
func quarantine(in files, name string) error {
	broken, err := brokenName(in, name)
	if err != nil {
		return err
	}
	return in.rename(name, broken)
}

// truncateAtFault cuts off a segment where it is damaged.
func truncateAtFault(in files, s *segment) error {
	if err := keepCopy(in, s.name); err != nil {
		return err
	}
	f, err := in.edit(s.name)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(s.End), f.Sync(), f.Close())
}

// keepCopy copies a file before it is changed.
func keepCopy(in files, name string) error {
	broken, err := brokenName(in, name)
	if err != nil {
		return err
	}
	from, err := in.open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	size, err := from.Size()
	if err != nil {
		return err
	}
	to, err := in.create(broken)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(to, 0), io.NewSectionReader(from, 0, size))
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close(), in.sync())
}

// repairSnapshot replaces a snapshot by the part of it that can be read. Any part of a snapshot is
// valid, because its keys may be loaded in any order.
func repairSnapshot(in files, s *snapshot) error {
	if err := keepCopy(in, s.name); err != nil {
		return err
	}
	from, err := in.open(s.name)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := in.create(repairName)
	if err != nil {
		return err
	}
	s.size, err = copyReadable(from, to, s)
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	if err := in.rename(repairName, s.name); err != nil {
		return err
	}
	return in.sync()
}

// copyReadable copies the entries of a damaged snapshot, up to the damage, to a new one.
func copyReadable(from, to file, s *snapshot) (size int64, err error) {
	w, err := journal.Create(to, s.header) // with the same mark, to which a segment may be linked
	if err != nil {
		return 0, err
	}
	if err := w.Begin(s.stamp); err != nil {
		return 0, err
	}
	err = s.replay(from, w.Append)
	var fault *Fault
	if err != nil && !errors.As(err, &fault) {
		return 0, err
	}
	err = w.End(true)
	return w.Size(), err
}
