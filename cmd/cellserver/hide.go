package main

import (
	"strings"
	"unsafe"
)

// secretOptions are those whose values are nobody's to see, of the server and of the small client.
var secretOptions = []string{"--requirepass", "--user", "--pass", "-a"}

// hideSecrets returns a copy of the process's arguments, and overwrites what is secret in them: the
// memory that they lie in is what ps and /proc/PID/cmdline show. So a password can be seen there
// for the first moment of the process alone.
func hideSecrets(args []string) []string {
	copied := make([]string, len(args))
	for i := range args {
		copied[i] = strings.Clone(args[i])
	}
	for i, arg := range copied {
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

// overwrite writes asterisks in a string's own memory, which has to be the process's arguments' and
// so may be written to.
func overwrite(text string) {
	memory := unsafe.Slice(unsafe.StringData(text), len(text))
	for i := range memory {
		memory[i] = '*'
	}
}
