package rules

import (
	"go/ast"
	"slices"
	"strings"
)

const redcon = "github.com/tidwall/redcon"

// mayImport says for each package which packages its code, without its tests, may import: first the
// project's packages, then others. All packages may import the standard library. The chain to
// remember is
//
//	quota < gcra, window, lease < limit < form < store < client < command < decide < families < session < commands,
//	server < cmd
//
// with resp and transcript as leaves at its side. A trailing /... means a package and the packages
// below it.
var mayImport = map[string][]string{
	// The Go client is a module of its own, and imports nothing of the server. Packages that join it to a framework
	// or a library import these.
	"clients/go":                    {"github.com/redis/go-redis/v9"},
	"clients/go/adapters/gin":       {"example.com/cellserver/clients/go", "github.com/gin-gonic/gin"},
	"clients/go/adapters/grpc":      {"example.com/cellserver/clients/go", "google.golang.org/..."},
	"clients/go/adapters/throttled": {"example.com/cellserver/clients/go", "github.com/throttled/throttled/v2"},
	"clients/go/adapters/ulule": {
		"example.com/cellserver/clients/go", "github.com/redis/go-redis/v9", "github.com/ulule/limiter/v3",
	},

	"internal/quota":            {},
	"internal/calendar":         {},
	"internal/calendar/zonezip": {},
	"internal/gcra":             {"internal/quota"},
	"internal/hold":             {},
	"internal/window":           {"internal/quota", "internal/hold"},
	"internal/lease":            {"internal/quota"},

	"internal/limit": {"internal/quota", "internal/calendar", "internal/gcra", "internal/hold", "internal/window"},

	"internal/standing": {"internal/quota", "internal/window"},
	"internal/policy": {
		"internal/quota", "internal/calendar", "internal/gcra", "internal/window", "internal/limit", "internal/standing",
		"internal/match", "internal/stats", "go.yaml.in/yaml/v3",
	},

	"internal/envoy": {
		"go.yaml.in/yaml/v2", "go.yaml.in/yaml/v3", "google.golang.org/protobuf/...",
		"github.com/envoyproxy/go-control-plane/ratelimit/...",
	},

	// The decisions of calls that clients may repeat.
	"internal/idempotency": {"internal/quota"},

	// Packages whose bytes reach a disk.
	"internal/form":    {"internal/calendar", "internal/limit", "internal/window", "internal/lease", "internal/standing"},
	"internal/entry":   {"internal/form", "internal/hold", "internal/window", "internal/lease"},
	"internal/journal": {},
	"internal/rdb":     {},

	"internal/metric":    {},
	"internal/topk":      {},
	"internal/match":     {},
	"internal/acl":       {"internal/match"},
	"internal/tlsconfig": {},
	"internal/logging":   {},
	"internal/systemd":   {},

	"internal/option":     {"internal/quota", "github.com/spf13/pflag"},
	"internal/redisconf":  {"internal/option", "github.com/spf13/pflag"},
	"internal/resp":       {redcon},
	"internal/meter":      {"golang.org/x/sys/unix"},
	"internal/transcript": {},

	"internal/store": {
		"internal/calendar", "internal/quota", "internal/gcra", "internal/limit", "internal/lease", "internal/standing",
		"internal/form", "golang.org/x/sys/unix",
	},
	"internal/store/memory": {
		"internal/calendar", "internal/limit", "internal/quota", "internal/gcra", "internal/window",
		"internal/lease", "internal/standing", "internal/hold",
		"internal/form", "internal/entry",
		"internal/store", "internal/idempotency", "internal/meter", "golang.org/x/sys/unix",
	},
	"internal/store/remote/combine": {"internal/store"},
	"internal/store/remote/ahead":   {"internal/limit", "internal/quota", "internal/gcra", "internal/window"},
	"internal/store/remote/adding": {
		"internal/store/remote/ahead",
		"internal/calendar", "internal/limit", "internal/quota", "internal/window", "internal/form",
		"internal/store/remote/combine",
	},
	"internal/store/remote/remotetest": {
		"internal/form", "internal/limit", "internal/match", "internal/store", "internal/store/remote/combine",
	},
	"internal/store/remote": {
		"internal/limit", "internal/quota", "internal/gcra", "internal/lease", "internal/standing",
		"internal/form", "internal/store",
		"internal/store/memory", "internal/hold", "internal/idempotency", "internal/store/remote/combine",
		"internal/store/remote/adding", "internal/store/remote/ahead",
	},
	"internal/store/remote/backend": {
		"internal/resp", "internal/store/remote/combine", "internal/store/remote/adding",
		"github.com/redis/go-redis/v9/...",
	},
	"internal/store/storetest": {
		"internal/calendar", "internal/limit", "internal/quota", "internal/gcra", "internal/window",
		"internal/lease", "internal/standing",
		"internal/form", "internal/store",
		"github.com/stretchr/testify/...", "pgregory.net/rapid", "github.com/anishathalye/porcupine",
	},
	"internal/persist": {
		"internal/entry", "internal/form", "internal/hold", "internal/journal", "internal/limit", "internal/rdb",
		"internal/store",
		"golang.org/x/sys/unix",
	},
	"internal/stats":      {"internal/meter"},
	"internal/background": {},
	"internal/waiting":    {},
	"internal/client":     {"internal/acl", "internal/option", "internal/resp", "internal/store"},
	"internal/maxmemory":  {"internal/client"},
	"internal/command": {
		"internal/client", "internal/limit", "internal/stats",
		"internal/quota", "internal/gcra", "internal/store", "internal/resp", "internal/topk", "internal/match",
		"internal/acl",
	},

	// A family knows the language of commands, the clients and the store, but no session and no other
	// family.
	"internal/commands/tracking": {"internal/client", "internal/command", "internal/resp", "internal/store",
		"internal/option"},
	"internal/commands/pubsub": {"internal/client", "internal/command", "internal/limit", "internal/resp",
		"internal/store",
		"internal/option"},
	"internal/decide": {"internal/limit", "internal/policy", "internal/quota", "internal/standing", "internal/stats",
		"internal/store", "internal/command", "internal/metric", "internal/topk", "github.com/zeebo/xxh3"},
	"internal/commands/limiter": {
		"internal/decide", "internal/calendar", "internal/limit", "internal/quota", "internal/gcra",
		"internal/window", "internal/lease",
		"internal/store", "internal/resp",
		"internal/command", "internal/metric", "internal/stats", "internal/option"},
	"internal/commands/policy": {"internal/decide", "internal/limit", "internal/policy", "internal/quota",
		"internal/standing",
		"internal/store", "internal/command", "internal/metric", "internal/option", "internal/stats"},
	"internal/commands/explain": {"internal/acl", "internal/command", "internal/decide", "internal/limit",
		"internal/policy", "internal/quota"},
	"internal/commands/access": {"internal/acl", "internal/client", "internal/command", "internal/resp",
		"internal/store", "internal/option"},
	"internal/commands/value": {"internal/form", "internal/limit", "internal/store", "internal/resp", "internal/command",
		"github.com/zeebo/xxh3"},
	"internal/commands/keyspace": {"internal/acl", "internal/client", "internal/command", "internal/form",
		"internal/limit", "internal/match", "internal/rdb", "internal/resp", "internal/store"},
	"internal/commands/transaction": {
		"internal/client", "internal/command", "internal/limit", "internal/resp", "internal/store",
	},
	"internal/commands/connection": {"internal/client", "internal/command", "internal/resp", "internal/store"},
	"internal/commands/admin": {
		"internal/client", "internal/command", "internal/limit", "internal/maxmemory", "internal/meter",
		"internal/metric", "internal/option",
		"internal/resp", "internal/stats", "internal/store",
	},
	"internal/commands/persistence": {"internal/command", "internal/metric", "internal/option", "internal/persist",
		"internal/store"},

	"internal/session": {
		"internal/commands/access", "internal/commands/admin", "internal/commands/connection",
		"internal/commands/persistence", "internal/commands/pubsub", "internal/commands/tracking",
		"internal/commands/transaction", "internal/acl", "internal/background", "internal/client", "internal/command",
		"internal/maxmemory", "internal/metric", "internal/resp", "internal/stats", "internal/store", "internal/waiting",
	},
	"internal/commands/commandstest": {
		"internal/command", "internal/commands", "internal/form", "internal/lease", "internal/limit",
		"internal/option", "internal/policy",
		"internal/rdb", "internal/session/sessiontest", "internal/store", "internal/store/memory", "internal/store/remote",
		"internal/store/remote/remotetest", "internal/transcript", "internal/window", "github.com/stretchr/testify/...",
	},
	"internal/leaktest": {"go.uber.org/goleak"},
	"internal/racetest": {},
	"internal/session/sessiontest": {
		"internal/client", "internal/command", "internal/session", "internal/store", "internal/transcript",
		"github.com/stretchr/testify/...",
	},
	"internal/commands": {
		"internal/commands/...", "internal/decide", "internal/session", "internal/acl", "internal/client", "internal/command",
		"internal/maxmemory", "internal/meter", "internal/metric", "internal/option", "internal/policy", "internal/resp",
		"internal/stats",
		"internal/store",
	},
	"internal/server": {
		"internal/session", "internal/client", "internal/resp", "internal/meter", "internal/option", "internal/stats",
		"golang.org/x/sys/unix",
	},
	"internal/web":     {"internal/client"},
	"internal/webhook": {"internal/metric", "internal/option"},
	"internal/httpapi": {
		"internal/web", "internal/session", "internal/client", "internal/command", "internal/decide", "internal/metric",
		"internal/policy", "internal/option", "internal/quota", "internal/resp",
	},
	"internal/grpcapi": {
		"internal/envoy", "internal/session", "internal/client", "internal/command", "internal/metric", "internal/option",
		"internal/resp",
		"internal/web",
		"github.com/envoyproxy/go-control-plane/envoy/...", "google.golang.org/grpc/...", "google.golang.org/protobuf/...",
	},
	"internal/xds": {
		"internal/envoy", "internal/option", "internal/tlsconfig", "github.com/envoyproxy/go-control-plane/envoy/...",
		"github.com/envoyproxy/go-control-plane/ratelimit/...", "google.golang.org/genproto/googleapis/rpc/status",
		"google.golang.org/grpc/...", "google.golang.org/protobuf/...",
	},
	"internal/monitor": {"internal/metric", "github.com/prometheus/client_golang/..."},
	"internal/page":    {"internal/client", "internal/session", "internal/option", "internal/resp", "internal/web"},
	"internal/cli": {
		"internal/option", "internal/resp", "internal/tlsconfig",
		"github.com/spf13/pflag", "github.com/redis/go-redis/v9/...", "golang.org/x/term",
	},
	"internal/top": {
		"internal/cli", "internal/resp", "github.com/spf13/pflag", "github.com/redis/go-redis/v9", "golang.org/x/term",
	},
	"internal/demo": {"github.com/redis/go-redis/v9/..."},
	"internal/transfer": {
		"internal/cli", "internal/form", "internal/hold", "internal/limit", "internal/match", "internal/option",
		"internal/persist", "internal/rdb",
		"internal/resp", "internal/store", "github.com/spf13/pflag", "github.com/redis/go-redis/v9",
	},
	"internal/weblog": {"internal/policy", "github.com/tidwall/gjson", "github.com/klauspost/compress/zstd"},
	"internal/replay": {
		"internal/command", "internal/decide", "internal/gcra", "internal/limit", "internal/option", "internal/policy",
		"internal/quota", "internal/store", "internal/weblog", "github.com/spf13/pflag",
	},
	"cmd/cellserver": {
		"internal/replay", "golang.org/x/term",
		"internal/store", "internal/store/memory", "internal/client", "internal/commands", "internal/server",
		"internal/session", "internal/meter", "internal/tlsconfig", "internal/logging", "internal/option", "internal/cli",
		"internal/monitor", "internal/policy", "internal/persist", "internal/redisconf", "internal/transfer",
		"internal/store/remote", "internal/store/remote/backend", "internal/store/remote/combine", "internal/top",
		"internal/web", "internal/httpapi", "internal/page", "internal/calendar",
		"internal/envoy", "internal/grpcapi", "internal/xds", "internal/systemd", "internal/demo", "internal/webhook",
		"internal/metric",
		"github.com/spf13/pflag", "golang.org/x/sys/unix",
	},
}

// layers is the chain, lowest first. It keeps a new line in mayImport from reversing the chain.
var layers = [][]string{
	{"internal/quota", "internal/hold"},
	{"internal/gcra", "internal/window", "internal/lease", "internal/idempotency"},
	{"internal/limit", "internal/standing"},
	{"internal/form"},
	{"internal/store"},
	{"internal/store/memory", "internal/store/remote/combine", "internal/client", "internal/persist"},
	{"internal/store/remote"},
	{"internal/maxmemory"},
	{"internal/command"},
	{"internal/decide"},
	{"internal/commands/access", "internal/commands/pubsub", "internal/commands/tracking", "internal/commands/limiter",
		"internal/commands/policy", "internal/commands/explain", "internal/commands/value", "internal/commands/keyspace",
		"internal/commands/transaction",
		"internal/commands/connection", "internal/commands/persistence", "internal/commands/admin"},
	{"internal/session"},
	{"internal/commands"},
	{"internal/server", "internal/web"},
	{"internal/httpapi", "internal/page", "internal/grpcapi"},
	{"cmd/cellserver"},
}

func importsFollowPolicy(t *tree) (breaches []string) {
	for _, f := range t.files {
		if f.isTest() || f.under("test", "bench") {
			continue
		}
		allowed, known := mayImport[f.dir]
		if !known {
			breaches = append(breaches, t.at(f.syntax, "%s has no import policy: give it a line", f.dir))
			continue
		}
		for _, spec := range f.syntax.Imports {
			imported := strings.TrimPrefix(strings.Trim(spec.Path.Value, "`\""), module+"/")
			if !isStandard(imported) && !slices.ContainsFunc(allowed, covers(imported)) {
				breaches = append(breaches, t.at(spec, "%s may not import %s", f.dir, imported))
			}
		}
	}
	return breaches
}

// isStandard reports whether a path is in the standard library, whose paths have no dot in the
// first element.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	own := first == "internal" || first == "cmd" || first == "test" || first == "bench" || first == module
	return !own && first != "C" && !strings.Contains(first, ".")
}

func covers(imported string) func(pattern string) bool {
	return func(pattern string) bool {
		root, tree := strings.CutSuffix(pattern, "/...")
		return imported == root || tree && strings.HasPrefix(imported, root+"/")
	}
}

// policyFollowsLayers returns the lines of a policy that import upwards, or sideways, in the chain.
func policyFollowsLayers(policy map[string][]string) (breaches []string) {
	height := map[string]int{}
	for i, layer := range layers {
		for _, dir := range layer {
			height[dir] = i
		}
	}
	for dir, allowed := range policy {
		for _, imported := range allowed {
			above, listed := height[imported]
			own, ranked := height[dir]
			if listed && ranked && above >= own {
				breaches = append(breaches, dir+" imports "+imported+" against the chain")
			}
		}
	}
	return breaches
}

// onlyMainChoosesStore finds code that makes a store, because code that is given a store must work
// with every store. The stores are the packages below internal/store. A store may make another one
// for itself, and tests may choose one.
func onlyMainChoosesStore(t *tree) (breaches []string) {
	for _, f := range t.files {
		if f.isTest() || f.under("cmd", "test", "bench", "internal/store/remote", "internal/commands/commandstest") {
			continue
		}
		f.uses(func(node ast.Node, from, name string) {
			chosen, below := strings.CutPrefix(from, module+"/internal/store/")
			if below && strings.HasPrefix(name, "New") {
				breaches = append(breaches, t.at(node, "%s.%s: only cmd/cellserver chooses a store", chosen, name))
			}
		})
	}
	return breaches
}
