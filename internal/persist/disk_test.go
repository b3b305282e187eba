package persist

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

const sectorBytes = 512

var (
	errFull  = errors.New("no space left on device")
	errSync  = errors.New("input/output error")
	errCrash = errors.New("the process has crashed")
)

// disk is a folder on a simulated disk, which can fail and lose power. It counts the calls of its
// methods and of its files' methods. After call crashAt, all calls fail and have no effect.
type disk struct {
	mu                sync.Mutex
	names             map[string]*node
	synced            map[string]*node // the names at the last sync of the folder
	pending           []change         // changes of names since that sync
	calls             int
	crashAt           int  // 0 for never
	capacity          int  // bytes that all files may have
	noNames           bool // no file can be created: there are no inodes left
	failEach          int  // if not 0, every failEach-th sync fails, of a file or of the folder
	syncs             int  // the number of syncs
	noSync            bool // syncs of files fail, and their data never reaches the disk
	ignoresSync       bool // syncs of files do nothing
	ignoresFolderSync bool // syncs of the folder do nothing
}

// change is a change of names.
type change func(names map[string]*node)

// node is the content of a file.
type node struct {
	content []byte
	durable []byte
	dirty   map[int]bool // sectors that are not on the disk
}

func newDisk() *disk {
	return &disk{names: map[string]*node{}, synced: map[string]*node{}, capacity: 1 << 40}
}

// call counts a call.
func (d *disk) call() error {
	if d.crashed() {
		return errCrash
	}
	d.calls++
	return nil
}

func (d *disk) crashed() bool { return d.crashAt > 0 && d.calls >= d.crashAt }

func (d *disk) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changeNames(from, func(names map[string]*node) {
		names[to] = names[from]
		delete(names, from)
	})
}

func (d *disk) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changeNames(name, func(names map[string]*node) { delete(names, name) })
}

func (d *disk) changeNames(of string, c change) error {
	if err := d.call(); err != nil {
		return err
	}
	if d.names[of] == nil {
		return fs.ErrNotExist
	}
	c(d.names)
	d.pending = append(d.pending, func(names map[string]*node) {
		if names[of] != nil {
			c(names)
		}
	})
	return nil
}

func (d *disk) checkIdentity(name string, f file) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names[name] != f.(*diskFile).node {
		return fs.ErrNotExist
	}
	return nil
}

func (d *disk) sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.call(); err != nil || d.ignoresFolderSync {
		return err
	}
	if d.failsSync() {
		return errSync
	}
	d.synced, d.pending = maps.Clone(d.names), nil
	return nil
}

func (d *disk) failsSync() bool {
	d.syncs++
	return d.failEach > 0 && d.syncs%d.failEach == 0
}

func (d *disk) list() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.names)), d.call()
}

func (d *disk) open(name string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.call(); err != nil {
		return nil, err
	}
	if d.names[name] == nil {
		return nil, fs.ErrNotExist
	}
	return &diskFile{d, d.names[name]}, nil
}

func (d *disk) edit(name string) (file, error) { return d.open(name) }

func (d *disk) create(name string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.call(); err != nil {
		return nil, err
	}
	if d.used() >= d.capacity || d.noNames && d.names[name] == nil {
		return nil, errFull
	}
	n := d.names[name]
	if n == nil {
		n = &node{dirty: map[int]bool{}}
		d.names[name] = n
		d.pending = append(d.pending, func(names map[string]*node) { names[name] = n })
	}
	n.content = nil
	return &diskFile{d, n}, nil
}

func (d *disk) free() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int64(d.capacity - d.used())
}

func (d *disk) used() (bytes int) {
	for _, n := range d.names {
		bytes += len(n.content)
	}
	return bytes
}

// diskFile is an open file of a disk.
type diskFile struct {
	disk *disk
	*node
}

func (f *diskFile) WriteAt(p []byte, offset int64) (n int, err error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.call(); err != nil {
		return 0, err
	}
	end := int(offset) + len(p)
	if free := f.disk.capacity - f.disk.used(); end-len(f.content) > free {
		end, err = max(len(f.content)+free, int(offset)), errFull
	}
	if end > len(f.content) {
		f.content = append(f.content, make([]byte, end-len(f.content))...)
	}
	n = copy(f.content[offset:end], p)
	for sector := int(offset) / sectorBytes; sector*sectorBytes < end; sector++ {
		f.dirty[sector] = true
	}
	return n, err
}

func (f *diskFile) ReadAt(p []byte, offset int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return bytes.NewReader(f.content).ReadAt(p, offset)
}

func (f *diskFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.call(); err != nil {
		return err
	}
	f.content = f.content[:size]
	return nil
}

func (f *diskFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.call(); err != nil || f.disk.ignoresSync {
		return err
	}
	if f.disk.noSync || f.disk.failsSync() {
		clear(f.dirty)
		return errSync
	}
	f.durable = append(f.durable, make([]byte, max(0, len(f.content)-len(f.durable)))...)[:len(f.content)]
	for sector := range f.dirty {
		if from := sector * sectorBytes; from < len(f.content) {
			copy(f.durable[from:], f.content[from:min(from+sectorBytes, len(f.content))])
		}
	}
	clear(f.dirty)
	return nil
}

func (f *diskFile) Size() (int64, error) { return int64(len(f.content)), nil }

func (f *diskFile) Close() error { return nil }

// killed returns the disk after the process was killed, with everything that was written.
func (d *disk) killed() *disk {
	return d.after(func() bool { return true }, func(n *node) []byte { return bytes.Clone(n.content) })
}

// powerFailure returns the disk after a power failure. Only what was synced has reached it.
func (d *disk) powerFailure() *disk {
	return d.after(func() bool { return false }, func(n *node) []byte { return bytes.Clone(n.durable) })
}

// torn returns the disk after a power failure. Some of the unsynced sectors and changes of names
// have reached it.
func (d *disk) torn(random *rand.Rand) *disk {
	return d.after(func() bool { return random.IntN(2) == 0 }, func(n *node) []byte { return n.torn(random) })
}

func (n *node) torn(random *rand.Rand) []byte {
	size := len(n.durable)
	if len(n.content) > size {
		size += random.IntN(len(n.content) - size + 1)
	} else if random.IntN(2) == 0 {
		size = len(n.content)
	}
	left := make([]byte, size)
	copy(left, n.durable)
	for sector := range n.dirty {
		if from := sector * sectorBytes; random.IntN(2) == 0 && from < size && from < len(n.content) {
			copy(left[from:min(from+sectorBytes, size)], n.content[from:])
		}
	}
	return left
}

// after returns the disk after a crash. reached reports whether a pending change of names is on the
// disk, and left returns the content of a file.
func (d *disk) after(reached func() bool, left func(n *node) []byte) *disk {
	names := maps.Clone(d.synced)
	for _, c := range d.pending {
		if reached() {
			c(names)
		}
	}
	next := newDisk()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		content := left(names[name])
		next.names[name] = &node{content: content, durable: bytes.Clone(content), dirty: map[int]bool{}}
	}
	next.synced = maps.Clone(next.names)
	return next
}
