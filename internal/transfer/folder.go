package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"cellserver/internal/form"
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
func loadFolder(dir string, databases int, create NewStore, log *slog.Logger) (*persist.Folder, persist.Store, error) {
	f, err := persist.Open(context.Background(), dir, persist.Options{Log: log})
	if err != nil {
		return nil, nil, err
	}
	data, loader := create(databases, f.Clock())
	if err := f.Load(context.Background(), loader); err != nil {
		return nil, nil, errors.Join(err, f.Close(), data.Close())
	}
	return f, data, nil
}

// exportFolder writes the content of a folder to an RDB file.
func exportFolder(dir string, create NewStore, log *slog.Logger, to *outputFile) (err error) {
	f, data, err := loadFolder(dir, maxDatabases, create, log)
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
}

// openFolder opens a folder. now is the current time, in Unix milliseconds.
func openFolder(
	dir string, databases int, create NewStore, log *slog.Logger, r *report, replace bool,
) (d *folderDestination, now int64, err error) {
	f, data, err := loadFolder(dir, databases, create, log)
	if err != nil {
		return nil, 0, err
	}
	if err := f.Run(data); err != nil {
		return nil, 0, errors.Join(err, f.Close(), data.Close())
	}
	d = &folderDestination{folder: f, data: data, view: data.View(), offset: data.Clock().Offset(), report: r,
		replace: replace}
	return d, form.Milliseconds(d.view.Now() + d.offset), nil
}

func (d *folderDestination) put(it *item) error {
	if it.database >= d.data.Databases() {
		d.report.refuse(fmt.Sprintf("of database %d: --databases is only %d", it.database, d.data.Databases()), it.key)
		return nil
	}
	d.view.Select(it.database)
	d.view.Begin()
	ctx := context.Background()
	n, err := d.view.Count(ctx, [][]byte{it.key})
	switch {
	case err != nil:
		return err
	case n > 0 && !d.replace:
		d.report.refuse("which exist already (--replace replaces them)", it.key)
		return nil
	case it.state != nil && !it.state.Shift(-d.offset):
		d.report.refuse("limiters with instants that the store's clock cannot represent", it.key)
		return nil
	case it.state != nil:
		err = d.view.WriteForm(ctx, it.key, it.state)
	default:
		err = d.view.Write(ctx, it.key, valueOf(it.value), d.instant(it.expires))
	}
	if err == nil {
		d.report.written(it.state != nil)
	}
	return err
}

// instant converts an expiry, in Unix milliseconds, to an instant on the store's clock.
func (d *folderDestination) instant(expires int64) int64 {
	const last = (store.Never - 1) / 1e6
	if expires == rdb.Never {
		return store.Never
	}
	return max(min(expires, last)*1e6-d.offset, 0)
}

// valueOf converts a string to a value: an integer if it has the form of one.
func valueOf(value []byte) store.Value {
	if n, ok := resp.ParseInt(value); ok {
		return store.Value{Integer: n, IsInteger: true}
	}
	return store.Value{Bytes: value}
}

// close writes all changes. It flushes first, because that returns an error if the disk fails.
func (d *folderDestination) close() error {
	err := d.folder.Flush()
	return errors.Join(err, d.folder.Close(), d.data.Close())
}
