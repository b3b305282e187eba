//go:build linux

package main

import (
	"fmt"
	"strings"
)

// newer is a redis-server or valkey-server that is newer than the usual redis-server.
type newer struct {
	program string // empty if there is no newer server
	name    string // such as valkey-server 9.1.2
}

// findNewer asks a program for its name and version.
func findNewer(program string) (n newer, err error) {
	if program == "" {
		return n, nil
	}
	text, err := output(program, "--version")
	if err != nil {
		return n, fmt.Errorf("--newer: %w", err)
	}
	first, _, _ := strings.Cut(text, " ")
	version := redisVersion(text)
	if version == "" {
		return n, fmt.Errorf("--newer: %s is neither a redis-server nor a valkey-server: it says %.60q", program, text)
	}
	return newer{program, strings.ToLower(first) + "-server " + version}, nil
}

// instead returns contenders on the newer server in place of redis-server. It returns none if there is no newer
// server.
func (n newer) instead(contenders ...contender) (all []contender) {
	if n.program == "" {
		return nil
	}
	for _, c := range contenders {
		c.start = append([]string{n.program}, c.start[1:]...)
		all = append(all, c.named(n.name+": "+callOf(c.name)))
	}
	return all
}

// callOf returns the name of a contender without its server.
func callOf(name string) string {
	return strings.TrimLeft(strings.TrimPrefix(name, "redis-server"), ", ")
}
