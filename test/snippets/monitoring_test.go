package snippets

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

const monitoring = "docs/monitoring.md"

var (
	shellCommand = regexp.MustCompile(`(?m)^    (cellserver cli .*)$`)
	code         = regexp.MustCompile("`([^`]+)`")
)

// shell runs a command of a document, with the small client or redis-cli connected to a server.
func shell(t *testing.T, server *peer.Server, command string) string {
	own := peer.Command().Path + " cli -p " + strconv.Itoa(server.Port) + " "
	command = strings.ReplaceAll(command, "cellserver cli ", own)
	command = strings.ReplaceAll(command, "redis-cli ", "redis-cli -e -p "+strconv.Itoa(server.Port)+" ")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	printed, err := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command).CombinedOutput()
	require.NoError(t, err, "%s: %s", command, printed)
	return string(printed)
}

// Every command of the page succeeds.
func TestMonitoringCommands(t *testing.T) {
	server := peer.StartPlain(t)
	shell(t, server, "redis-cli ACL SETUSER shop")
	commands := shellCommand.FindAllStringSubmatch(read(t, monitoring), -1)
	require.GreaterOrEqual(t, len(commands), 10)
	for _, m := range commands {
		shell(t, server, m[1])
	}
}

// The script of the page writes the decisions as metrics.
func TestDecisionsAsMetrics(t *testing.T) {
	server := peer.StartPlain(t)
	for range 3 {
		shell(t, server, "redis-cli CL.THROTTLE user123 1 1 60")
	}
	shell(t, server, "redis-cli CL.FIXED user456 5 60 1")
	assert.Equal(t, `cell_decisions_total{limiter="cl_throttle",decision="allowed"} 2
cell_decisions_total{limiter="cl_throttle",decision="limited"} 1
cell_decisions_total{limiter="cl_fixed",decision="allowed"} 1
cell_decisions_total{limiter="cl_fixed",decision="limited"} 0
`, shell(t, server, named(t, monitoring, "decisions.sh").text))
}

// firstCells returns the code in the first cells of the tables of a page's section.
func firstCells(t *testing.T, page, section string) (all []string) {
	_, rest, found := strings.Cut(page, "\n## "+section+"\n")
	require.True(t, found, section)
	rest, _, _ = strings.Cut(rest, "\n## ")
	for line := range strings.Lines(rest) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
				all = append(all, m[1])
			}
		}
	}
	return all
}

// Every field that the page explains is in INFO's reply.
func TestMonitoringFields(t *testing.T) {
	var info strings.Builder
	for _, measured := range []string{"loops", "locks"} {
		client := peer.Client(&redis.Options{Addr: peer.StartPlain(t, "--measure-pauses", measured, "--dir",
			t.TempDir(), "--policies", writePolicies(t), "--grpc-unixsocket", t.TempDir()+"/grpc", "--envoy-config",
			envoyConfig(t)).Addr})
		defer client.Close()
		require.NoError(t, client.ConfigSet(t.Context(), "slowlog-log-slower-than", "0").Err()) // time every call
		for range 100 {                                                                         // for latencystats
			require.NoError(t, client.Do(t.Context(), "CL.THROTTLE", "user123", 15, 30, 60).Err())
		}
		require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
		require.ErrorContains(t, client.Set(t.Context(), "k", "v", 0).Err(), "OOM")
		reply, err := client.Info(t.Context(), "everything").Result()
		require.NoError(t, err)
		info.WriteString(reply)
	}
	stored := peer.Client(&redis.Options{
		Addr: peer.StartPlain(t, "--store", "redis://127.0.0.1:1", "--loglevel", "nothing").Addr})
	defer stored.Close()
	info.WriteString(stored.Info(t.Context(), "store").Val())
	fields := firstCells(t, read(t, monitoring), "INFO")
	assert.Greater(t, len(fields), 30)
	assert.Empty(t, missingFields(fields, info.String()), "fields that INFO does not have")
	assert.Equal(t, []string{"nosuch"}, missingFields([]string{"db0", "nosuch"}, info.String()))
}

// envoyConfig returns the path of a configuration for --envoy-config.
func envoyConfig(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "limits")
	require.NoError(t, os.WriteFile(path, []byte("domain: shop\ndescriptors: [{key: user, rate_limit: {unlimited: true}}]\n"), 0o600))
	return path
}

func missingFields(fields []string, info string) (missing []string) {
	for _, field := range fields {
		if !strings.Contains(info, "\n"+field+":") {
			missing = append(missing, field)
		}
	}
	return missing
}

// Every log message that the page explains is one that the server can log.
func TestMonitoringMessages(t *testing.T) {
	literals := stringsOfProduct(t)
	messages := firstCells(t, read(t, monitoring), "The log")
	assert.Greater(t, len(messages), 10)
	assert.Empty(t, missingMessages(messages, literals), "messages that the server does not log")
	assert.Equal(t, []string{"no such message"}, missingMessages([]string{"listening", "no such message"}, literals))
}

func missingMessages(messages, literals []string) (missing []string) {
	for _, message := range messages {
		found := false
		for _, literal := range literals {
			found = found || strings.HasPrefix(literal, message)
		}
		if !found {
			missing = append(missing, message)
		}
	}
	return missing
}

// Every warning and every error that the server logs is explained.
func TestMonitoringExplainsWarnings(t *testing.T) {
	explained := firstCells(t, read(t, monitoring), "The log")
	warnings := logged(t, "Warn", "warn", "Error")
	assert.Greater(t, len(warnings), 40)
	assert.Empty(t, withoutRow(warnings, explained), "messages that the page does not explain")
	assert.Equal(t, []string{"no row"}, withoutRow([]string{"no row", "epoll failed: again"}, explained))
}

func withoutRow(messages, explained []string) (missing []string) {
	for _, message := range messages {
		begins := func(row string) bool { return strings.HasPrefix(message, row) }
		if !slices.ContainsFunc(explained, begins) {
			missing = append(missing, message)
		}
	}
	return missing
}

// logged returns the messages with which methods of some names are called. If a message is composed, it
// returns the beginning.
func logged(t *testing.T, methods ...string) (messages []string) {
	inspectProduct(t, func(node ast.Node) {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(methods, method.Sel.Name) {
			return
		}
		if owner, ok := method.X.(*ast.SelectorExpr); ok && owner.Sel.Name == "Out" {
			return // a reply
		}
		message := call.Args[0]
		for composed, is := message.(*ast.BinaryExpr); is; composed, is = message.(*ast.BinaryExpr) {
			message = composed.X
		}
		if literal, ok := message.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, _ := strconv.Unquote(literal.Value)
			messages = append(messages, text)
		}
	})
	return messages
}

// stringsOfProduct returns all string constants of the server's code, without its tests.
func stringsOfProduct(t *testing.T) (all []string) {
	inspectProduct(t, func(node ast.Node) {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, _ := strconv.Unquote(literal.Value)
			all = append(all, text)
		}
	})
	return all
}

// inspectProduct visits the syntax of the server's code, without its tests.
func inspectProduct(t *testing.T, visit func(node ast.Node)) {
	for _, dir := range []string{"cmd", "internal"} {
		err := fs.WalkDir(os.DirFS(filepath.Join(root, dir)), ".", func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, dir, name), nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				visit(node)
				return true
			})
			return nil
		})
		require.NoError(t, err)
	}
}
