package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/persist"
	"cellserver/internal/rdb"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// NewStore returns an empty store, and a loader for it.
type NewStore func(databases int, clock store.Clock) (persist.Store, persist.Loader)

// maxDatabases is the maximum of the server's option databases.
const maxDatabases = 1024

// loadFolder loads a folder of --dir. The error is a *persist.LockedError if a server is using it.
func loadFolder(dir string, databases int, e *Environment, readOnly bool) (*persist.Folder, persist.Store, error) {
	o := persist.Options{Log: e.logger(), Version: e.Version, ReadOnly: readOnly}
	f, err := persist.Open(context.Background(), dir, o)
	if err != nil {
		return nil, nil, err
	}
	data, loader := e.NewStore(databases, f.Clock())
	if err := f.Load(context.Background(), loader); err != nil {
		return nil, nil, errors.Join(err, f.Close(), data.Close())
	}
	return f, data, nil
}

// exportFolder writes the content of a folder to an RDB file. It changes nothing in the folder.
func exportFolder(dir string, e *Environment, to *outputFile) (err error) {
	f, data, err := loadFolder(dir, maxDatabases, e, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), data.Close()) }()
	return persist.WriteRDB(context.Background(), to, data)
}

// folderDestination writes keys into a folder.
type folderDestination struct {
	folder  *persist.Folder
	data    persist.Store
	view    store.View
	offset  int64 // from the store's clock to Unix time
	report  *report
	replace bool
	bounds  bounds
	last    []byte // the key that the last item has written or found; "" if the item was left out
}

// openFolder opens the folder of the option dir. now is the current time, in Unix milliseconds.
func (o *options) openFolder(e *Environment, r *report) (d *folderDestination, now int64, err error) {
	f, data, err := loadFolder(o.dir, o.databases, e, false)
	if err != nil {
		return nil, 0, err
	}
	if err := f.Run(data, nil); err != nil {
		return nil, 0, errors.Join(err, f.Close(), data.Close())
	}
	d = &folderDestination{folder: f, data: data, view: data.View(), offset: data.Clock().Offset(), report: r,
		replace: o.replace, bounds: o.bounds}
	return d, form.Milliseconds(d.view.Now() + d.offset), nil
}

func (d *folderDestination) put(it *item) error {
	if it.holds != nil {
		return d.putHolds(it)
	}
	d.last = d.last[:0]
	if why := d.refusal(it); why != "" {
		d.report.refuse(why, it.key)
		return nil
	}
	d.view.Select(it.database)
	d.view.Begin()
	if !d.replace {
		exists, same, err := d.compare(it)
		switch {
		case err != nil:
			return err
		case same:
			d.last = append(d.last, it.key...)
			d.report.count(&d.report.unchanged)
			return nil
		case exists:
			d.report.refuse("which exist already (--replace replaces them)", it.key)
			return nil
		}
	}
	err := d.write(it)
	if err == nil {
		d.last = append(d.last, it.key...)
		d.report.written(it.state != nil)
	}
	return err
}

// putHolds writes the open holds of a key. In a file, the holds follow the key. If the key has no state, a file has
// only the holds, and putHolds writes them unless the folder has a key of this name.
func (d *folderDestination) putHolds(it *item) error {
	if it.database >= d.data.Databases() || len(it.key) > d.bounds.key {
		d.report.leaveHolds(it)
		return nil
	}
	d.view.Select(it.database)
	d.view.Begin()
	_, e, err := d.view.Read(context.Background(), it.key, nil)
	if err != nil {
		return err
	}
	holds := d.view.(store.HoldCarrier)
	old, fits := holds.ReadHolds(it.key, nil), it.holds.Shift(-d.offset, limit.Kind(it.holds.Kind()) == limit.Quota)
	switch belong := e.Kind == limit.None || bytes.Equal(d.last, it.key); {
	case len(old) > 0 && bytes.Equal(old, it.holds.Append(nil)): // an earlier import has written them
	case !belong || !fits || len(old) > 0 || holds.WriteHolds(it.key, it.holds.Append(nil)) != nil:
		d.report.leaveHolds(it)
	default:
		d.report.holds += int64(it.holds.Len())
	}
	return nil
}

// refusal returns why a key cannot be in the folder, or "" if it can. It converts the instants of a
// limiter to the store's clock.
func (d *folderDestination) refusal(it *item) string {
	switch {
	case it.database >= d.data.Databases():
		return fmt.Sprintf("of database %d: --databases is only %d", it.database, d.data.Databases())
	case it.state != nil && !it.state.Shift(-d.offset):
		return "limiters with instants that the store's clock cannot represent"
	}
	return d.bounds.refusal(it)
}

// compare reports whether a key exists, and whether its content is the same: an earlier run may
// have written it.
func (d *folderDestination) compare(it *item) (exists, same bool, err error) {
	ctx := context.Background()
	content, e, err := d.view.Read(ctx, it.key, nil)
	if err == nil && e.Kind != limit.None && !e.Kind.IsValue() {
		content, e, err = d.view.ReadForm(ctx, it.key, nil)
	}
	exists = e.Kind != limit.None
	same = exists && e.Kind.IsValue() == (it.state == nil) && bytes.Equal(content, it.appendContent(nil))
	return exists, same, err
}

func (d *folderDestination) write(it *item) error {
	if it.state != nil {
		return d.view.WriteForm(context.Background(), it.key, it.state)
	}
	return d.view.Write(context.Background(), it.key, valueOf(it.value), d.instant(it.expires))
}

// instant converts an expiry, in Unix milliseconds, to an instant on the store's clock.
func (d *folderDestination) instant(expires int64) int64 {
	const last = (store.Never - 1) / 1e6
	if expires == rdb.Never {
		return store.Never
	}
	return max(min(expires, last)*1e6-d.offset, 0)
}

// valueOf converts a string to a value, which is an integer if the string has the form of an
// integer.
func valueOf(value []byte) store.Value {
	if n, ok := resp.ParseInt(value); ok {
		return store.Value{Integer: n, IsInteger: true}
	}
	return store.Value{Bytes: value}
}

// close writes all changes. It calls Flush first, which returns an error if the disk fails.
func (d *folderDestination) close() error {
	err := d.folder.Flush()
	return errors.Join(err, d.folder.Close(), d.data.Close())
}
