package cellserver

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadme runs the program with which README.md begins, against a real server.
func TestReadme(t *testing.T) {
	s := start(t)
	text, err := os.ReadFile("README.md")
	check(t, err)
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("README.md has no program")
	}
	lines := strings.TrimSpace(string(block[1]))
	if n := strings.Count(lines, "\n") + 1; n > 6 {
		t.Errorf("the program has %d lines, and 6 is the most", n)
	}
	program := `package main
import ("context"; "fmt"; "time"; "github.com/redis/go-redis/v9"; cellserver "example.com/cellserver/clients/go")
func main() { ctx := context.Background()
` + strings.ReplaceAll(lines, "127.0.0.1:6379", s.addr) + "\n}\n"
	formatted, err := format.Source([]byte(program))
	check(t, err)
	dir, err := os.MkdirTemp(".", "readme")
	check(t, err)
	defer os.RemoveAll(dir)
	check(t, os.WriteFile(filepath.Join(dir, "main.go"), formatted, 0o600))
	output, err := exec.Command("go", "run", "./"+dir).CombinedOutput()
	if err != nil || string(output) != "true 15\n" {
		t.Errorf("it prints %s: %v", output, err)
	}
}
