package commands

import (
	"fmt"
	"os"
	"runtime/metrics"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/store"
)

// The section Memory of INFO. What has no meaning here, such as the memory of scripts, is 0, as
// Redis has it of what there is none of.

func infoMemory(c *command.Call, out *strings.Builder) {
	var keys int64
	for _, u := range store.UsageOf(c.View) {
		keys += u.Bytes
	}
	in := instanceOf(c)
	used, resident, most := in.memory.used(), residentBytes(), in.memory.most.Load()
	peak, startup := in.memory.peak.Load(), in.memory.startup
	bytesField(out, "used_memory", used)
	bytesField(out, "used_memory_rss", resident)
	bytesField(out, "used_memory_peak", peak)
	field(out, "used_memory_peak_perc", percent(used, peak))
	field(out, "used_memory_overhead", max(used-keys, 0))
	field(out, "used_memory_startup", startup)
	field(out, "used_memory_dataset", keys)
	field(out, "used_memory_dataset_perc", percent(keys, max(used-startup, keys)))
	field(out, "allocator_allocated", used)
	field(out, "allocator_active", resident)
	field(out, "allocator_resident", resident)
	bytesField(out, "total_system_memory", client.SystemMemory())
	fields(out, "used_memory_lua:0", "used_memory_vm_eval:0", "used_memory_lua_human:0B", "used_memory_scripts_eval:0",
		"number_of_cached_scripts:0", "number_of_functions:0", "number_of_libraries:0", "used_memory_vm_functions:0",
		"used_memory_vm_total:0", "used_memory_vm_total_human:0B", "used_memory_functions:0", "used_memory_scripts:0",
		"used_memory_scripts_human:0B")
	bytesField(out, "maxmemory", most)
	fields(out, "maxmemory_policy:noeviction")
	field(out, "mem_fragmentation_ratio", ratio(resident, used))
	field(out, "mem_fragmentation_bytes", resident-used)
	fields(out, "mem_not_counted_for_evict:0", "mem_replication_backlog:0", "mem_total_replication_buffers:0",
		"mem_clients_slaves:0")
	field(out, "mem_clients_normal", in.clients.HeldBytes())
	field(out, "mem_clients_unauthenticated", in.clients.Unauthenticated().Stats().Bytes)
	fields(out, "mem_cluster_links:0", "mem_aof_buffer:0", "mem_allocator:go", "active_defrag_running:0",
		"lazyfree_pending_objects:0",
		"lazyfreed_objects:0")
}

// bytesField is a number of bytes, and the same for people.
func bytesField(out *strings.Builder, name string, bytes int64) {
	field(out, name, bytes)
	field(out, name+"_human", human(bytes))
}

func ratio(part, of int64) string { return fmt.Sprintf("%.2f", float64(part)/float64(max(of, 1))) }

func percent(part, of int64) string {
	return fmt.Sprintf("%.2f%%", 100*float64(part)/float64(max(of, 1)))
}

// heapBytes is what Go's heap holds.
func heapBytes() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// residentBytes is the process's resident set, 0 where the system does not tell.
func residentBytes() int64 {
	var size, resident int64
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
