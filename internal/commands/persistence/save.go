package persistence

import (
	"errors"

	"cellserver/internal/command"
	"cellserver/internal/persist"
)

const (
	errInMemory   command.Refusal = "ERR nothing can be saved: this server keeps its keys in memory only; --dir names a folder for them"
	errElsewhere  command.Refusal = "ERR nothing is saved here: the keys are in another program (--store), which saves them"
	errSaving     command.Refusal = "ERR Background save already in progress"
	errCompacting command.Refusal = "ERR Background append only file rewriting already in progress"
)

// errNotDurable returns the error of a call that needs a folder, if there is none.
func (f *Family) errNotDurable() error {
	if f.External {
		return errElsewhere
	}
	return errInMemory
}

// errorFor converts an error of the folder to the reply of a command.
func errorFor(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, persist.ErrSaving):
		return errSaving
	case errors.Is(err, persist.ErrCompacting):
		return errCompacting
	}
	return command.Refusal("ERR the keys were not saved: " + err.Error())
}

func (f *Family) lastSave() *command.Command {
	return &command.Command{
		Name: "lastsave", Group: "server", Category: "admin", Since: "1.0.0", Complexity: "O(1)",
		Flags: command.Loading | command.Stale | command.Fast | command.Dangerous,
		Cost:  command.Constant, Tips: command.Varying,
		Summary: "Returns when SAVE or BGSAVE last completed its file, or when the server started.",
		Reply:   "Unix seconds.",
		Run: func(c *command.Call) error {
			last := c.Unix(f.Started) / 1e9
			if f.Folder != nil {
				last = f.Folder.Status().RDB.LastSave
			}
			c.Out.Int(last)
			return nil
		},
	}
}

func (f *Family) save() *command.Command {
	return &command.Command{
		Name: "save", Group: "server", Category: "none", Since: "1.0.0",
		Complexity: "O(N) in the number of keys",
		Flags:      command.Admin | command.Dangerous | command.NoScript | command.NoMulti,
		Cost:       command.Unbounded,
		Summary: "Writes all keys to a file in Redis's format, and waits until it is complete. Other clients are served meanwhile. " +
			"Refused without --dir.",
		Reply: "OK.",
		Run: func(c *command.Call) error {
			if f.Folder == nil {
				return f.errNotDurable()
			}
			c.Out.Status("OK")
			return errorFor(f.saveAndWait(c))
		},
	}
}

// SaveIfDurable does what SAVE does. Without a folder it does nothing.
func (f *Family) SaveIfDurable(c *command.Call) error {
	if f.Folder == nil {
		return nil
	}
	return errorFor(f.saveAndWait(c))
}

// saveAndWait writes the file, and waits until it is complete.
func (f *Family) saveAndWait(c *command.Call) (err error) {
	c.Await(func() { err = f.Folder.SaveRDB(*f.fileName.Load()) })
	f.Tick() // the client's next call may write again, or not any more
	return err
}

func (f *Family) bgSave() *command.Command {
	return &command.Command{
		Name: "bgsave", Group: "server", Category: "none", Since: "1.0.0", Complexity: "O(1)",
		Flags: command.Admin | command.Dangerous | command.NoScript,
		Summary: "Begins to write all keys to a file in Redis's format; LASTSAVE shows when it is complete. " +
			"Refused without --dir.",
		Args: []command.Arg{command.Flag("SCHEDULE")}, Reply: "Background saving started.",
		Run: func(c *command.Call) error {
			if f.Folder == nil {
				return f.errNotDurable()
			}
			c.Out.Status("Background saving started")
			return errorFor(f.Folder.BeginSaveRDB(*f.fileName.Load()))
		},
	}
}

func (f *Family) bgRewriteAOF() *command.Command {
	return &command.Command{
		Name: "bgrewriteaof", Group: "server", Category: "none", Since: "1.0.0", Complexity: "O(1)",
		Flags: command.Admin | command.Dangerous | command.NoScript,
		Summary: "Begins to write a snapshot of all keys, after which the journal is short again. The server does so on its own when " +
			"the journal is long. Refused without --dir.",
		Reply: "Background append only file rewriting started.",
		Run: func(c *command.Call) error {
			if f.Folder == nil {
				return f.errNotDurable()
			}
			c.Out.Status("Background append only file rewriting started")
			return errorFor(f.Folder.Compact())
		},
	}
}
