package keyspace

import (
	"cellserver/internal/command"
	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/rdb"
	"cellserver/internal/store"
)

// reloadSlice is the number of keys that Reload finds before it reloads them.
const reloadSlice = 256

// Reload replaces every key by what its payload of DUMP says, for DEBUG RELOAD. So a test sees
// whether anything is lost on the way through a file. Other clients are served meanwhile.
func (k *Family) Reload(c *command.Call) error {
	selected := c.View.Selected()
	defer c.View.Select(selected)
	for database := range c.Server.Databases {
		c.View.Select(database)
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			var keys [][]byte
			var err error
			c.View.Begin()
			cursor, err = c.View.Scan(c.Context, cursor, reloadSlice, func(key []byte, _ store.Entry) {
				keys = append(keys, append([]byte(nil), key...))
			})
			if err != nil {
				return err
			}
			for _, key := range keys {
				if err := k.reloadKey(c, key); err != nil {
					return err
				}
			}
			c.Yield()
		}
	}
	return nil
}

// reloadKey replaces one key.
func (k *Family) reloadKey(c *command.Call, key []byte) error {
	return c.View.Atomically(c.Context, []store.KeyRef{inSelected(c, key)}, false, func() error {
		content, e, err := c.ReadContent(key)
		if err != nil || e.Kind == limit.None {
			return err
		}
		payload, err := payloadOf(c, content, e.Kind)
		if err != nil {
			return err
		}
		rec, err := rdb.ReadDump(payload)
		if err != nil {
			return err
		}
		r := restoration{key: key, replace: true}
		if e.Kind.IsValue() {
			return r.restoreValue(c, valueOf(rec), e.Expires)
		}
		var state form.State
		switch err := state.Read(rec.Bytes, 0); {
		case err != nil:
			return errForm(err)
		case !state.Shift(-c.Server.Clock.Offset()):
			return errInstants
		}
		return c.View.WriteForm(c.Context, key, &state)
	})
}
