package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"cellserver/internal/commands"
	"cellserver/internal/meter"
	"cellserver/internal/persist"
	"cellserver/internal/session"
	"cellserver/internal/store/memory"
)

// folder is the folder of --dir, in which keys survive a restart. Without --dir, opened is nil, and
// the methods do nothing.
type folder struct {
	opened  *persist.Folder // nil without --dir
	data    *memory.Store   // that it loads and saves
	stop    func()          // interrupts load
	loading sync.WaitGroup
}

// openFolder opens the folder of --dir. While another server uses it, openFolder waits, up to
// --dir-wait, so that a new server may be started before the old one has ended.
func (c *config) openFolder(ctx context.Context, log *slog.Logger) (*folder, error) {
	s := &c.commands.Persistence
	if err := s.Check(); err != nil {
		return nil, c.file.Locate(err)
	}
	f := &folder{stop: func() {}}
	if s.Dir == "" {
		return f, nil
	}
	opened, err := persist.Open(ctx, s.Dir, persist.Options{
		Wait: inSeconds(s.Wait), StartWithFault: s.OnFault == "start",
		NoSync: s.NoSync(), Version: version, Log: log,
	})
	if err != nil {
		return nil, explain(err, s.Dir)
	}
	warnWritable(s.Dir, log)
	warnNotLoaded(opened, s.FileName, log)
	f.opened = opened
	return f, nil
}

// warnWritable warns if other users may write into the folder: they could remove its files, or replace
// them. That they may list it is no reason, because only the owner can read the files.
func warnWritable(dir string, log *slog.Logger) {
	const others = 0o002
	if info, err := os.Stat(dir); err == nil && info.Mode()&others != 0 {
		log.Warn("all users may write into the folder, and so change limits: use chmod o-w", "dir", dir)
	}
}

// warnNotLoaded warns if the folder has keys of another program, such as a redis-server that has
// used it before: the server would begin without them, and without a word.
func warnNotLoaded(opened *persist.Folder, fileName string, log *slog.Logger) {
	names := []string{fileName}
	if fileName != persist.DefaultRDBName {
		names = append(names, persist.DefaultRDBName)
	}
	for _, name := range names {
		if err := opened.CheckReplaceable(name); err != nil {
			log.Warn("a file in the folder is not loaded", "file", name, "reason", err)
		}
	}
	for _, name := range []string{"appendonlydir", "appendonly.aof"} {
		if _, err := os.Lstat(filepath.Join(opened.Dir(), name)); err == nil {
			log.Warn("a journal of redis-server is not loaded: start a redis-server with it, and copy its keys with "+
				"cellserver import redis://...", "name", name)
		}
	}
}

// explain adds advice for the operator to an error.
func explain(err error, dir string) error {
	var locked *persist.LockedError
	var newer *persist.NewerError
	switch {
	case errors.As(err, &newer):
		return fmt.Errorf("%w; start that version or a later one, or choose another folder with --dir", err)
	case isDamage(err):
		return fmt.Errorf("%w; cellserver check %s shows the damage, and with --fix repairs it; with --dir-fault start, the server starts with what can be read", err, dir)
	case errors.As(err, &locked):
		return fmt.Errorf("%w: stop that server, wait longer with --dir-wait, or choose another folder with --dir", err)
	}
	return err
}

// openMemory opens the folder, and returns an empty store, which load fills from the folder. The clock
// of the store continues the previous process's.
func (c *config) openMemory(ctx context.Context, log *slog.Logger, holds *meter.MaxCPUTime) (*folder, error) {
	f, err := c.openFolder(ctx, log)
	if err != nil {
		return nil, err
	}
	o := memory.Options{Databases: c.databases, Holds: holds, MaxIDs: c.commands.Limiter.MaxIDs,
		MaxHolds: c.commands.Limiter.MaxHolds}
	if f.opened != nil {
		o.Clock = f.opened.Clock()
	}
	f.data = memory.New(o)
	return f, nil
}

// commands returns the folder for the commands; nil without a folder.
func (f *folder) commands() commands.Folder {
	if f.opened == nil {
		return nil
	}
	return f.opened
}

// addProcessor gives the process one more processor, in the sense of Go's scheduler, once. A goroutine
// that waits for the disk keeps its processor until the runtime notices, after up to 10 ms, and with as
// many processors as event loops, a loop may need it meanwhile. On one core, the 99.9th percentile of
// calls while a snapshot was written was 16 ms without it, and 3 ms to 8 ms with it. At one call in
// flight, a call takes 2 % more CPU time.
var addProcessor = sync.OnceFunc(func() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) })

// load begins to load all keys, and returns. Clients can connect meanwhile, and most of their calls
// are refused. When all keys are loaded, changes are written to the folder, and load calls ready.
// If that fails, it calls fail with the error.
func (f *folder) load(instance *session.Instance, log *slog.Logger, ready func(), fail func(error)) {
	if f.opened == nil {
		ready()
		return
	}
	addProcessor() // after the event loops have started, one per processor
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.loading.Go(func() {
		err := f.opened.Load(ctx, f.data.Load())
		if err == nil {
			err = f.opened.Run(f.data, &instance.Background.Busy)
		}
		switch {
		case err == nil:
			log.Info("loaded all keys", "dir", f.opened.Dir(), "keys", keys(f.data))
			instance.Persistence.Loaded()
			ready()
		case ctx.Err() == nil:
			fail(explain(err, f.opened.Dir()))
		}
	})
}

// keys returns the number of keys in a store.
func keys(data *memory.Store) (sum int) {
	for _, u := range data.Usage() {
		sum += u.Keys
	}
	return sum
}

// close writes the last changes, and closes the folder. It is called after the last reply. It
// interrupts load.
func (f *folder) close() error {
	f.stop()
	f.loading.Wait()
	if f.opened == nil {
		return nil
	}
	return f.opened.Close()
}
