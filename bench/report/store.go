package report

import (
	"bytes"
	"fmt"
	"strings"
)

// The names in the scenarios about --store.
const (
	RedisRate       = "redis_rate"
	RedisRateScript = "redis_rate's script, pipelined"
	RedisCell       = "redis-cell"
	Pipelined       = "1 cellserver, pipelined"
	Ping            = "PING of the backend"
)

// Cellservers is the name of a number of cellservers that share a backend.
func Cellservers(n int) string {
	if n == 1 {
		return "1 cellserver"
	}
	return fmt.Sprintf("%d cellservers", n)
}

// storeLoads are the loads of the scenarios about CPU time.
var storeLoads = []struct{ suffix, about string }{
	{"", "100,000 keys, 256 callers"}, {"-hot", "one key, 256 callers"}, {"-alone", "100,000 keys, one caller"},
}

// scenario returns the name of the scenario of a load.
func (b store) scenario(suffix string) string { return "store-" + b.name + suffix }

func storeScenarios() (names []string) {
	for _, b := range stores {
		for _, load := range storeLoads {
			names = append(names, b.scenario(load.suffix))
		}
		names = append(names, b.scenario("-latency"), b.scenario("-share"))
	}
	return names
}

// storeCPU returns the CPU time of a call in a backend and in the cellservers in front of it, in a
// table for each load.
func (r *Results) storeCPU() string {
	var tables []string
	for _, load := range storeLoads {
		var rows figures
		for _, b := range stores {
			if s := r.Find(b.scenario(load.suffix)); s != nil {
				rows = append(rows, storeRows(s, b.nameIn(s))...)
			}
		}
		tables = append(tables, storeTable(rows, load.about, "CPU time of the store per call", "redis_rate = 1",
			"CPU time of cellserver per call")...)
	}
	return strings.Join(tables, "\n")
}

// store is a kind of backend.
type store struct {
	name    string // as in the names of scenarios
	program string
}

// stores are the backends of the scenarios.
var stores = []store{{"redis", "Redis"}, {"valkey", "Valkey"}}

// nameIn returns the name with the measured version.
func (b store) nameIn(s *Scenario) string {
	for _, i := range s.Inside {
		if i.Field == b.name+"_version" {
			return b.program + " " + i.Value
		}
	}
	return b.program
}

func storeRows(s *Scenario, program string) (rows figures) {
	for _, row := range s.CPU {
		if row.Server == RedisRate+" again" {
			continue
		}
		own := ""
		if row.Own != nil {
			own = micros(row.Own.Middle)
		}
		rows = append(rows, figure{s, []string{program + ": " + row.Server, micros(row.Micros.Middle),
			fmt.Sprintf("%.2f", row.Ratio.Middle), own}})
	}
	return rows
}

// storeTable returns a table, if there are rows.
func storeTable(rows figures, heading ...string) []string {
	if len(rows) == 0 {
		return nil
	}
	var b bytes.Buffer
	rows.write(&b, heading)
	return []string{b.String()}
}

// storeLatency returns how long calls at a modest rate take.
func (r *Results) storeLatency() string {
	var rows figures
	for _, b := range stores {
		s := r.Find(b.scenario("-latency"))
		if s == nil {
			continue
		}
		for _, row := range s.Latency {
			rows = append(rows, figure{s, []string{b.nameIn(s) + ": " + row.Server, wholeMicros(row.Micros[0].Middle),
				wholeMicros(row.Micros[1].Middle)}})
		}
	}
	return strings.Join(storeTable(rows, "100,000 keys", "p50", "p99"), "\n")
}

// storeShares returns how many decisions cellservers get that call one key.
func (r *Results) storeShares() string {
	var rows figures
	for _, b := range stores {
		s := r.Find(b.scenario("-share"))
		if s == nil {
			continue
		}
		for _, row := range s.Shares {
			rows = append(rows, figure{s, []string{b.nameIn(s) + ": " + row.Server, fmt.Sprintf("%.0f", row.Rate),
				fmt.Sprintf("%.2f", row.Slowest.Middle), fmt.Sprintf("%.2f ms", row.P99), fmt.Sprintf("%.0f", row.MostTries),
				fmt.Sprintf("%.2f %%", 100*row.Failed)}})
		}
	}
	return strings.Join(storeTable(rows, "one key", "calls per second", "the slowest, of an even share", "its p99",
		"most tries", "failed"), "\n")
}
