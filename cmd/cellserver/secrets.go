package main

import (
	"strings"
	"unsafe"
)

// secretOptions are the options of the server and of the client whose values are secret.
var secretOptions = []string{"--requirepass", "--user", "--store-password", "--webhook", "--envoy-xds-headers",
	"--pass", "-a"}

// hideSecrets returns a copy of the process's arguments, and overwrites the secrets in the
// original, whose memory ps and /proc/PID/cmdline show. So they show a password only for the first
// moment of the process.
func hideSecrets(args []string) []string {
	copied := make([]string, len(args))
	for i := range args {
		copied[i] = strings.Clone(args[i])
	}
	for i, arg := range copied {
		begin, end := strings.Index(arg, "://"), strings.LastIndex(arg, "@") // redis://user:password@host
		if begin > 0 && end > begin {
			overwrite(args[i][begin+len("://") : end])
		}
		for _, option := range secretOptions {
			rest, ok := strings.CutPrefix(arg, option)
			switch {
			case !ok || i == 0:
			case rest == "" && i+1 < len(args):
				overwrite(args[i+1])
			case strings.HasPrefix(rest, "="):
				overwrite(args[i][len(option)+1:])
			case rest != "" && !strings.HasPrefix(option, "--"):
				overwrite(args[i][len(option):])
			}
		}
	}
	return copied
}

// overwrite overwrites the memory of a string with asterisks. The string must be an argument of the
// process, whose memory is writable.
func overwrite(text string) {
	memory := unsafe.Slice(unsafe.StringData(text), len(text))
	for i := range memory {
		memory[i] = '*'
	}
}
