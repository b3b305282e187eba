package client

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ContainerMemory returns the memory limit of the container in bytes: the least limit of the process's control
// group and of the groups above it. It returns 0 if there is no limit or it cannot be read. Container
// runtimes, systemd (MemoryMax=) and Kubernetes set it in the same way.
func ContainerMemory() (bytes int64) {
	groups, _ := os.ReadFile("/proc/self/cgroup")
	return containerMemory(string(groups), os.ReadFile)
}

func containerMemory(groups string, read func(path string) ([]byte, error)) (least int64) {
	for root, group := range memoryGroups(groups) {
		name := "memory.max"
		if strings.HasSuffix(root, "/memory") { // version 1
			name = "memory.limit_in_bytes"
		}
		// In a container, the folder of the process's group is often mounted in place of the root's folder.
		// Then the path that the kernel reports does not exist, and the root has the limit.
		for ; ; group = filepath.Dir(group) {
			text, err := read(filepath.Join(root, group, name))
			n, wrong := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // in version 2, "max" is no limit
			if err == nil && wrong == nil && n > 0 && n < 1<<60 && (least == 0 || n < least) {
				least = n // in version 1, a huge number is no limit
			}
			if group == "/" {
				break
			}
		}
	}
	return least
}

// memoryGroups returns the control groups of a process that may bound its memory, as /proc/self/cgroup lists
// them, by the folders of their hierarchies.
func memoryGroups(list string) map[string]string {
	groups := map[string]string{"/sys/fs/cgroup": "/", "/sys/fs/cgroup/memory": "/"}
	for line := range strings.Lines(list) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}
		path := filepath.Clean(fields[2])
		switch fields[1] {
		case "":
			groups["/sys/fs/cgroup"] = path
		case "memory":
			groups["/sys/fs/cgroup/memory"] = path
		}
	}
	return groups
}
