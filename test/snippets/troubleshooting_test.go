package snippets

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

const troubleshooting = "docs/troubleshooting.md"

// calledWord is the first word of a call in the text of a page.
var calledWord = regexp.MustCompile(`^(CL\.[A-Z]+|[A-Z]{3,})( |$)`)

// spans returns the code of a page: its indented blocks, and the code in its sentences. Code in a sentence may go on in
// the next line.
func spans(page string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^ {4,}(cellserver .*)$`).FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	for _, m := range code.FindAllStringSubmatch(page, -1) {
		all = append(all, strings.Join(strings.Fields(m[1]), " "))
	}
	return all
}

// refused matches the errors with which a server answers a call that does not exist, or does not exist in this
// form. If the page names a call without its last words, the server knows the command, and its other errors do not
// show a mistake of the page.
var refused = regexp.MustCompile(`unknown (sub)?command|syntax error|no such policy`)

// notCalls are the first words of codes and messages that look like calls.
var notCalls = []string{"OOM", "STOREDOWN", "NOPERM", "WRONGTYPE", "SIGHUP", "TLS"}

// tell runs a command of the page, and returns what is wrong with it. The command of a program is asked for its help.
func tell(t *testing.T, server *peer.Server, command string) (wrong string, ran bool) {
	words := strings.Fields(strings.TrimPrefix(command, "cellserver cli "))
	switch {
	case words[0] == "cellserver" && len(words) > 1:
		printed, err := peer.Command("help", words[1]).CombinedOutput()
		if err != nil || !strings.Contains(string(printed), words[1]) {
			return "cellserver help: " + string(printed), true
		}
		return "", true
	case !calledWord.MatchString(strings.Join(words, " ")), slices.Contains(notCalls, words[0]):
		return "", false
	case words[0] == "MONITOR": // MONITOR would not end
		words = []string{"COMMAND", "INFO", "monitor"}
	}
	printed, _ := peer.Command(append([]string{"cli", "-p", strconv.Itoa(server.Port)}, words...)...).CombinedOutput()
	if refused.Match(printed) || words[0] == "INFO" && !strings.Contains(string(printed), "# ") {
		return "the server says: " + string(printed), true
	}
	return "", true
}

// The server knows each command of the page, with its policies, limits and sections.
func TestTroubleshootingCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte("policies: {api: {limits: [{fixed: {limit: 9, period: 1m}}]}, "+
		"login: {limits: [{fixed: {limit: 9, period: 1m}}], shadow: true}}"), 0o600))
	server, known := peer.StartPlain(t, "--policies", file), 0
	over := peer.StartPlain(t, "--store", "redis://"+peer.StartRedis(t).Addr) // only then, INFO has this section
	for _, command := range spans(read(t, troubleshooting)) {
		asked := server
		if command == "INFO store" {
			asked = over
		}
		wrong, ran := tell(t, asked, command)
		assert.Empty(t, wrong, command)
		if ran {
			known++
		}
	}
	assert.Greater(t, known, 25)
	for _, planted := range []string{
		"CL.EXPLAN CL.TAKE x api", "CL.POLICY GET nosuch", "INFO nosuch", "cellserver chek FOLDER",
	} {
		wrong, _ := tell(t, server, planted)
		assert.NotEmpty(t, wrong, planted)
	}
}
