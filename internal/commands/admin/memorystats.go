package admin

import (
	"cellserver/internal/command"
	"cellserver/internal/maxmemory"
	"cellserver/internal/store"
)

func (a *Admin) memoryStats() *command.Command {
	return &command.Command{
		Name: "memory|stats", Group: "server", Category: "none", Since: "4.0.0", Complexity: "O(1)",
		Traits:  command.AnyKey | command.Sessionless | command.Needs(store.ReportsUsage),
		Tips:    []string{"nondeterministic_output", command.AllShards, "response_policy:special"},
		Summary: "Shows what memory is used for.",
		Reply:   "A map, with Redis's names, of bytes, numbers and percentages; what does not exist here is 0.",
		Run: func(c *command.Call) error {
			fields := a.memoryFields(c)
			c.Out.Map(len(fields))
			for _, f := range fields {
				c.Out.BulkString(f.name)
				if f.ratio != nil {
					c.Out.Double(*f.ratio)
				} else {
					c.Out.Int(f.value)
				}
			}
			return nil
		},
	}
}

// memoryField is a field of MEMORY STATS: an integer, or a ratio.
type memoryField struct {
	name  string
	value int64
	ratio *float64
}

// memoryFields returns the fields of Redis in its order. Their values agree with INFO.
func (a *Admin) memoryFields(c *command.Call) []memoryField {
	var held, keys int64
	for _, u := range store.UsageOf(c.View) {
		held += u.Bytes
		keys += int64(u.Keys)
	}
	m := a.Memory
	used, resident := m.Used(), maxmemory.Resident()
	peak, grown := m.Peak(), max(used-m.Startup, held)
	clients, _, _ := a.Clients.Buffers()
	return []memoryField{
		{"peak.allocated", peak, nil}, {"total.allocated", used, nil}, {"startup.allocated", m.Startup, nil},
		{"replication.backlog", 0, nil}, {"clients.slaves", 0, nil},
		{"clients.normal", clients, nil},
		{"cluster.links", 0, nil}, {"aof.buffer", 0, nil}, {"lua.caches", 0, nil}, {"functions.caches", 0, nil},
		{"overhead.total", max(used-held, 0), nil}, {"keys.count", keys, nil},
		{"keys.bytes-per-key", grown / max(keys, 1), nil}, {"dataset.bytes", held, nil},
		{"dataset.percentage", 0, share(100*held, grown)}, {"peak.percentage", 0, share(100*used, peak)},
		{"allocator.allocated", used, nil}, {"allocator.active", resident, nil}, {"allocator.resident", resident, nil},
		{"allocator-fragmentation.ratio", 0, share(resident, used)},
		{"allocator-fragmentation.bytes", resident - used, nil},
		{"allocator-rss.ratio", 0, share(1, 1)}, {"allocator-rss.bytes", 0, nil},
		{"rss-overhead.ratio", 0, share(1, 1)}, {"rss-overhead.bytes", 0, nil},
		{"fragmentation", 0, share(resident, used)}, {"fragmentation.bytes", resident - used, nil},
	}
}

func share(part, of int64) *float64 {
	ratio := float64(part) / float64(max(of, 1))
	return &ratio
}
