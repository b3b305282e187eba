package admin

import (
	"fmt"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/maxmemory"
	"cellserver/internal/store"
)

// Fields that have no meaning here, such as the memory of scripts, are 0, as in a Redis without
// them.

func (a *Admin) infoMemory(c *command.Call, out *command.InfoText) {
	var keys int64
	for _, u := range store.UsageOf(c.View) {
		keys += u.Bytes
	}
	used, resident, most := a.Memory.Used(), maxmemory.Resident(), a.Memory.Limit()
	peak, startup := a.Memory.Peak(), a.Memory.Startup
	out.Bytes("used_memory", used)
	out.Bytes("used_memory_rss", resident)
	out.Bytes("used_memory_peak", peak)
	out.Add("used_memory_peak_perc", percent(used, peak))
	if c.Server.Abilities&store.ReportsUsage != 0 {
		out.Add("used_memory_overhead", max(used-keys, 0))
		out.Add("used_memory_startup", startup)
		out.Add("used_memory_dataset", keys)
		out.Add("used_memory_dataset_perc", percent(keys, max(used-startup, keys)))
	}
	out.Add("allocator_allocated", used)
	out.Add("allocator_active", resident)
	out.Add("allocator_resident", resident)
	out.Bytes("total_system_memory", client.SystemMemory())
	out.Fixed("used_memory_lua:0", "used_memory_vm_eval:0", "used_memory_lua_human:0B", "used_memory_scripts_eval:0",
		"number_of_cached_scripts:0", "number_of_functions:0", "number_of_libraries:0", "used_memory_vm_functions:0",
		"used_memory_vm_total:0", "used_memory_vm_total_human:0B", "used_memory_functions:0", "used_memory_scripts:0",
		"used_memory_scripts_human:0B")
	out.Bytes("maxmemory", most)
	out.Fixed("maxmemory_policy:noeviction")
	out.Add("mem_fragmentation_ratio", ratio(resident, used))
	out.Add("mem_fragmentation_bytes", resident-used)
	out.Fixed("mem_not_counted_for_evict:0", "mem_replication_backlog:0", "mem_total_replication_buffers:0",
		"mem_clients_slaves:0")
	out.Add("mem_clients_normal", a.Clients.HeldBytes())
	out.Add("mem_clients_unauthenticated", a.Clients.Unauthenticated().Stats().Bytes)
	out.Fixed("mem_cluster_links:0", "mem_aof_buffer:0", "mem_allocator:go", "active_defrag_running:0",
		"lazyfree_pending_objects:0",
		"lazyfreed_objects:0")
}

func ratio(part, of int64) string { return fmt.Sprintf("%.2f", float64(part)/float64(max(of, 1))) }

func percent(part, of int64) string {
	return fmt.Sprintf("%.2f%%", 100*float64(part)/float64(max(of, 1)))
}
