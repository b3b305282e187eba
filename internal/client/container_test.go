package client

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The limits of the group, of the groups above it, and of a group that is mounted as the root.
func TestContainerMemory(t *testing.T) {
	for name, c := range map[string]struct {
		groups string
		files  map[string]string
		least  int64
	}{
		"none": {"0::/\n", nil, 0},
		"version 2, of a container": {
			"0::/\n", map[string]string{"/sys/fs/cgroup/memory.max": "1000\n"}, 1000},
		"version 2, without a limit": {
			"0::/a\n", map[string]string{"/sys/fs/cgroup/memory.max": "max\n", "/sys/fs/cgroup/a/memory.max": "max\n"}, 0},
		"version 2, of a service": {
			"0::/system.slice/cellserver.service\n", map[string]string{
				"/sys/fs/cgroup/system.slice/memory.max":                    "2000\n",
				"/sys/fs/cgroup/system.slice/cellserver.service/memory.max": "1000\n"}, 1000},
		"version 2, of the group above": {
			"0::/pods/one\n", map[string]string{
				"/sys/fs/cgroup/pods/memory.max": "500\n", "/sys/fs/cgroup/pods/one/memory.max": "1000\n"}, 500},
		"version 1": {
			"9:name=systemd:/\n4:memory:/docker/1\n", map[string]string{
				"/sys/fs/cgroup/memory/memory.limit_in_bytes":          "9223372036854771712\n",
				"/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "1000\n"}, 1000},
		"version 1, mounted as the root": {
			"4:memory:/docker/1\n", map[string]string{"/sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n"}, 1000},
		"outside of the root": {
			"0::/../../other\n", map[string]string{"/sys/fs/cgroup/memory.max": "1000\n"}, 1000},
		"nonsense": {"\n:\n0:::x\n4:memory:relative\n", map[string]string{"/sys/fs/cgroup/memory.max": "-1\n"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.least, containerMemory(c.groups, func(path string) ([]byte, error) {
				if text, ok := c.files[path]; ok {
					return []byte(text), nil
				}
				return nil, os.ErrNotExist
			}))
		})
	}
}
