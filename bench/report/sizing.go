package report

import (
	"bytes"
	"fmt"
	"slices"
)

// The figures that docs/sizing.md computes from the results.

const million = 1e6

// sizingMemory returns the memory of a million keys of each kind.
func (r *Results) sizingMemory() string {
	return r.tableOf("memory-limiters", func(s *Scenario) [][]string {
		rows := [][]string{{"keys of 17 bytes", "bytes per key", "a million keys"}}
		for _, m := range s.Memory {
			rows = append(rows, []string{m.Server, oneDecimal(m.PerKey()), wholeMiB(m.PerKey() * million)})
		}
		return rows
	})
}

// sizingConnections returns the memory of an idle connection of each kind.
func (r *Results) sizingConnections() string {
	return r.tableOf("memory-connections", func(s *Scenario) [][]string {
		rows := [][]string{{"an idle connection", "memory"}}
		for _, f := range s.Figures {
			rows = append(rows, []string{f.What, oneDecimal(f.Value) + " " + f.Unit})
		}
		return rows
	})
}

// sizingCPU returns the CPU time of a call, and how many calls a core answers if it does nothing
// else.
func (r *Results) sizingCPU() string {
	var rows figures
	for _, name := range []string{"cpu-p1-c1", "cpu-p1", "cpu-p1-c500", "cpu-p1-10m", "cpu-p16", "cpu-p64",
		"cpu-p64-10m"} {
		if s := r.Find(name); s != nil {
			c := cpuOf(s, Throttle)
			rows = append(rows, figure{s, []string{s.About, micros(c.Micros.Middle), fmt.Sprintf("%.0f", c.Throughput)}})
		}
	}
	var b bytes.Buffer
	rows.write(&b, []string{"CL.THROTTLE, keys in memory", "CPU per call", "calls/s measured"})
	return b.String()
}

// sizingStore returns the CPU time of a call in cellserver and in its store.
func (r *Results) sizingStore() string {
	var rows figures
	for _, load := range storeLoads {
		s := r.Find("store-redis" + load.suffix)
		if s == nil {
			continue
		}
		for _, name := range []string{Cellservers(1), Cellservers(4), Pipelined} {
			if c := cpuOf(s, name); c.Own != nil {
				rows = append(rows, figure{s, []string{name + ", " + load.about, micros(c.Own.Middle), micros(c.Micros.Middle)}})
			}
		}
	}
	var b bytes.Buffer
	rows.write(&b, []string{"keys in redis-server", "CPU of cellserver per call", "CPU of the store per call"})
	return b.String()
}

// The figures of dir-files from which sizes are computed.
const (
	snapshotSize = "files with a snapshot"                             // MiB, of 10M keys
	journalRate  = "100000 keys that all change every second: written" // MiB/s
)

// onDisk returns the bytes of a key in a snapshot, and of a change in the journal.
func (r *Results) onDisk() (key, change float64) {
	s := r.Find("dir-files")
	if s == nil {
		return 0, 0
	}
	value := func(what string) float64 {
		i := slices.IndexFunc(s.Figures, func(f Figure) bool { return f.What == what })
		if i < 0 {
			return 0
		}
		return s.Figures[i].Value * (1 << 20)
	}
	return value(snapshotSize) / (10 * million), value(journalRate) / 100_000
}

// sizingDisk returns the measurements with --dir, and the bytes that are computed from them.
func (r *Results) sizingDisk() string {
	return r.tableOf("dir-files", func(s *Scenario) [][]string {
		rows := [][]string{{"10M keys of CL.THROTTLE, --dir", "measured"}}
		for _, f := range s.Figures {
			rows = append(rows, []string{f.What, fmt.Sprintf("%.4g %s", f.Value, f.Unit)})
		}
		key, change := r.onDisk()
		return append(rows, []string{"so a key takes, in a snapshot", oneDecimal(key) + " bytes"},
			[]string{"so a changed key takes, in the journal", oneDecimal(change) + " bytes"})
	})
}

// examples are loads of a server without a store, whose keys have 17 bytes. On a disk, only keys of
// CL.THROTTLE were measured.
var examples = []struct {
	about, kind string
	keys, calls float64 // calls per second
}{
	{"1M users, 5,000 calls/s", "CL.THROTTLE", million, 5000},
	{"10M users, 20,000 calls/s", "CL.THROTTLE", 10 * million, 20_000},
	{"1M users, 5,000 calls/s", "CL.SLIDING", million, 5000},
	{"1M users, 500 calls/s", "CL.FIXED", million, 500},
}

// sizingExamples returns how much the examples need.
func (r *Results) sizingExamples() string {
	memory, alone, busy := r.Find("memory-limiters"), r.Find("cpu-p1-c1"), r.Find("cpu-p1")
	if memory == nil || alone == nil || busy == nil || r.Find("dir-files") == nil {
		return ""
	}
	key, change := r.onDisk()
	t := table{{"example", "memory", "of a core, busy", "of a core, calls alone", "snapshot", "journal, at most"}}
	for _, e := range examples {
		m := memoryOf(memory, e.kind)
		core := func(s *Scenario) string {
			return fmt.Sprintf("%.1f %%", e.calls*cpuOf(s, Throttle).Micros.Middle/1e6*100)
		}
		row := []string{e.kind + ": " + e.about, wholeMiB(float64(m.Start) + e.keys*m.PerKey()), core(busy), core(alone),
			"-", "-"}
		if e.kind == "CL.THROTTLE" {
			row[4], row[5] = wholeMiB(e.keys*key), fmt.Sprintf("%.0f KiB/s", e.calls*change/1024)
		}
		t = append(t, row)
	}
	return t.String()
}

func wholeMiB(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }
