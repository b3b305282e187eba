package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The check fails if it finds a vulnerability or an error. If the database cannot be reached, the
// check says so, and fails only where the database is required.
func TestVulnerabilities(t *testing.T) {
	const unreachable = "govulncheck: fetching vulnerabilities: Get \"https://vuln.go.dev/index/modules.json.gz\": no such host"
	for _, c := range []struct {
		says     string
		status   string
		required string
		passes   bool
		told     bool
	}{
		{"No vulnerabilities found.", "0", "required", true, false},
		{unreachable, "1", "", true, true},
		{unreachable, "1", "required", false, true},
		{"Vulnerability #1: GO-2026-0001", "1", "", false, false},
		{"go: golang.org/x/vuln@v1.3.0: not found", "1", "", false, false},
	} {
		fake := filepath.Join(t.TempDir(), "go")
		require.NoError(t, os.WriteFile(fake, []byte("#!/bin/sh\ncat <<'END'\n"+c.says+"\nEND\nexit "+c.status+"\n"), 0o700))
		cmd := exec.Command("make", "vulnerabilities", "GO="+fake, "VULNERABILITIES="+c.required)
		cmd.Dir = top
		out, err := cmd.CombinedOutput()
		assert.Equal(t, c.passes, err == nil, c.says)
		assert.Contains(t, string(out), c.says)
		if c.told {
			assert.Contains(t, string(out), "NOT CHECKED: the vulnerability database cannot be reached")
		} else {
			assert.NotContains(t, string(out), "NOT CHECKED")
		}
	}
}
