package persist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"cellserver/internal/form"
	"cellserver/internal/hold"
	"cellserver/internal/limit"
	"cellserver/internal/rdb"
	"cellserver/internal/store"
)

// WriteRDB writes the content of a store as an RDB file: strings and integers as such, throttle
// keys as redis-cell writes them, and other limiters as strings that contain their form (package
// form). Instants are converted to Unix time. If the store changes meanwhile, the keys are of
// different instants.
func WriteRDB(ctx context.Context, to io.Writer, data store.Store) error {
	return writeRDB(ctx, to, data, 0)
}

// writeRDB does what WriteRDB does. folder is the identity of the folder into which the file is
// written, or 0 if it is not in a folder.
func writeRDB(ctx context.Context, to io.Writer, data store.Store, folder uint64) error {
	view := data.View()
	if v, ok := view.(store.Observer); ok {
		v.Observe() // a backup does not use a key: OBJECT IDLETIME stays as it is
	}
	w := &rdbWriter{ctx: ctx, Writer: rdb.NewWriter(to), view: view, offset: data.Clock().Offset()}
	unix := (data.Clock().Now() + w.offset) / int64(time.Second)
	err := errors.Join(w.Field("redis-bits", "64"), w.Field("ctime", strconv.FormatInt(unix, 10)),
		w.Field(folderField, fmt.Sprintf("%016x", folder)))
	for database := 0; database < data.Databases() && err == nil; database++ {
		err = w.database(database)
	}
	if err != nil {
		return err
	}
	return w.Close()
}

// rdbWriter writes the keys of a view.
type rdbWriter struct {
	ctx context.Context
	*rdb.Writer
	view   store.View
	offset int64 // from the store's clock to Unix time
	keys   []rdbKey
	names  []byte // of all keys, concatenated
	value  []byte
	state  form.State
	book   []byte              // the form of the open holds of a key
	held   map[string]struct{} // the keys that had open holds, and were written before the others
}

// rdbKey is a key that a scan has found.
type rdbKey struct {
	end   int // where its name ends in names
	entry store.Entry
}

// sliceKeys is the number of keys that are scanned before they are written.
const sliceKeys = 256

func (w *rdbWriter) database(number int) error {
	w.view.Begin()
	w.view.Select(number)
	size, err := w.view.Size(w.ctx)
	if err != nil {
		return err
	}
	holds, _ := w.view.(store.HoldCarrier)
	var held [][]byte
	if holds != nil {
		held = holds.HeldKeys()
	}
	if size == 0 && held == nil {
		return nil
	}
	if err := w.Database(number, uint64(size), 0); err != nil {
		return err
	}
	if err := w.heldKeys(number, held, holds); err != nil {
		return err
	}
	for cursor := uint64(0); ; {
		w.keys, w.names = w.keys[:0], w.names[:0]
		w.view.Begin()
		cursor, err = w.view.Scan(w.ctx, cursor, sliceKeys, func(key []byte, e store.Entry) {
			w.names = append(w.names, key...)
			w.keys = append(w.keys, rdbKey{len(w.names), e})
		})
		if err != nil {
			return err
		}
		begin := 0
		for _, key := range w.keys {
			name := w.names[begin:key.end]
			if begin = key.end; w.isWritten(name) {
				continue
			}
			if err := w.key(name, key.entry); err != nil {
				return err
			}
		}
		if err := w.ctx.Err(); err != nil || cursor == 0 {
			return err
		}
		runtime.Gosched()
	}
}

// heldKeys writes the keys that have open holds, each followed by its holds. A key and its holds are read at the same
// instant: otherwise a hold could give back tokens that the key does not have. A key without a state may have holds.
func (w *rdbWriter) heldKeys(number int, keys [][]byte, holds store.HoldCarrier) error {
	w.held = make(map[string]struct{}, len(keys))
	for _, key := range keys {
		w.view.Begin()
		var e store.Entry
		err := w.view.Atomically(w.ctx, []store.KeyRef{{Database: number, Key: key}}, false, func() (err error) {
			w.book = holds.ReadHolds(key, w.book[:0])
			if _, e, err = w.view.Read(w.ctx, key, nil); err == nil {
				e, err = w.read(key, e)
			}
			return err
		})
		if err == nil && e.Kind != limit.None {
			err = w.put(key, e)
		}
		if err == nil && len(w.book) > 0 {
			err = w.holds(key)
		}
		if err != nil {
			return err
		}
		w.held[string(key)] = struct{}{}
	}
	return w.ctx.Err()
}

func (w *rdbWriter) isWritten(key []byte) bool {
	_, written := w.held[string(key)]
	return written
}

// holds writes the open holds of a key, which are in w.book.
func (w *rdbWriter) holds(key []byte) error {
	var book hold.Book
	if err := book.Read(w.book); err != nil {
		return err
	}
	if !book.Shift(w.offset, limit.Kind(book.Kind()) == limit.Quota) {
		return errors.New("an instant of a hold cannot be converted to Unix time: the wall clock is wrong")
	}
	return w.Field(hold.Field, string(hold.AppendField(nil, key, book.Append(w.book[:0]))))
}

// key writes a key that a scan has found. The key may have changed since, or no longer exist.
func (w *rdbWriter) key(key []byte, e store.Entry) error {
	e, err := w.read(key, e)
	if err != nil || e.Kind == limit.None {
		return err
	}
	return w.put(key, e)
}

// read reads the state that put needs. It returns an entry without a kind if the key no longer exists, or has
// another kind.
func (w *rdbWriter) read(key []byte, e store.Entry) (_ store.Entry, err error) {
	switch isValue := e.Kind.IsValue(); {
	case e.Kind == limit.Throttle || e.Kind == limit.None:
		return e, nil
	case isValue:
		w.value, e, err = w.view.Read(w.ctx, key, w.value[:0])
		if err != nil || !e.Kind.IsValue() {
			return store.Entry{}, err
		}
	default:
		w.value, e, err = w.view.ReadForm(w.ctx, key, w.value[:0])
		if err != nil || e.Kind.IsValue() {
			return store.Entry{}, err
		}
	}
	return e, nil
}

// put writes a key that was read.
func (w *rdbWriter) put(key []byte, e store.Entry) error {
	switch {
	case e.Kind == limit.Throttle:
		w.value = form.AppendTAT(w.value[:0], e.Expires+w.offset)
	case !e.Kind.IsValue():
		return w.form(key)
	}
	expires := int64(rdb.Never)
	if e.Expires != store.Never {
		expires = form.Milliseconds(e.Expires + w.offset)
	}
	if e.Kind == limit.Integer {
		n, err := strconv.ParseInt(string(w.value), 10, 64)
		if err != nil {
			return err
		}
		return w.Integer(key, n, expires)
	}
	return w.Bytes(key, w.value, expires)
}

// form writes a limiter whose form is in w.value, with its instants converted to Unix time.
func (w *rdbWriter) form(key []byte) error {
	if err := w.state.Read(w.value, math.MaxInt); err != nil {
		return fmt.Errorf("the state of a limiter: %w", err)
	}
	if w.offset != 0 && !w.state.Shift(w.offset) {
		return errors.New("an instant of a limiter cannot be converted to Unix time: the wall clock is wrong")
	}
	w.value = form.Append(w.value[:0], &w.state)
	return w.Bytes(key, w.value, form.Milliseconds(w.state.Expires()))
}

// SaveRDB writes an RDB file with the given name into the folder, and returns when it is on the
// disk. The error is ErrNotRunning, ErrSaving, or the disk's.
func (f *Folder) SaveRDB(name string) error {
	if err := f.beginSave(name); err != nil {
		return err
	}
	return f.save(name)
}

// BeginSaveRDB is like SaveRDB, but does not wait for the file. The Status shows its result.
func (f *Folder) BeginSaveRDB(name string) error {
	if err := f.beginSave(name); err != nil {
		return err
	}
	if err := f.CheckReplaceable(name); err != nil {
		return f.endSave(name, f.status.read().RDB.Changes, err)
	}
	go f.save(name)
	return nil
}

// beginSave begins a save, unless another one is in progress.
func (f *Folder) beginSave(name string) error {
	if name == "" || name == "." || name == ".." || name != filepath.Base(name) || isReserved(name) {
		return fmt.Errorf("%q cannot be the name of an RDB file", name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.stage != running:
		return ErrNotRunning
	case f.saving:
		return ErrSaving
	}
	f.saving = true
	f.saves.Add(1)
	f.status.saving()
	return nil
}

func (f *Folder) save(name string) error {
	changes := f.status.read().RDB.Changes
	err := f.CheckReplaceable(name)
	if err == nil {
		f.busy.Add(1)
		err = f.writeRDBFile(name)
		f.busy.Add(-1)
	}
	return f.endSave(name, changes, err)
}

// endSave ends a save, and returns its error. changes is the number of changes before the save
// began.
func (f *Folder) endSave(name string, changes int64, err error) error {
	defer f.saves.Done()
	failedBefore := f.status.saved(changes, err)
	f.mu.Lock()
	f.saving = false
	f.mu.Unlock()
	switch {
	case err == nil:
		f.log.Info("an RDB file was written", "file", name)
	case !failedBefore && !errors.Is(err, context.Canceled):
		f.log.Error("an RDB file cannot be written", "file", name, "error", err)
	}
	return err
}

// writeRDBFile writes a temporary file, and renames it when it is on the disk.
func (f *Folder) writeRDBFile(name string) error {
	to, err := f.files.create(rdbName)
	if err != nil {
		return err
	}
	err = writeRDB(f.ctx, io.NewOffsetWriter(to, 0), f.store, f.identity)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		f.files.remove(rdbName)
		return err
	}
	if err := f.CheckReplaceable(name); err != nil { // the file may have appeared meanwhile
		return errors.Join(err, f.files.remove(rdbName))
	}
	if err := f.files.rename(rdbName, name); err != nil {
		return err
	}
	return f.files.sync()
}
