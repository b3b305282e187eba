//go:build !race

package commands_test

import (
	"fmt"
	"strings"
	"time"

	"cellserver/internal/commands/commandstest"
	policies "cellserver/internal/policy"
)

// stage is the state of the server before a call is made.
type stage struct {
	what    string // in words, for the table
	prepare func(s *commandstest.Server)
}

// The names of stages are those of their keys: v, a value of 1 MiB; log, a log of 100,000 entries;
// leases, with 10,000 holders.
var stages = map[string]stage{
	"value": {"a value of 1 MiB",
		func(s *commandstest.Server) {
			sendOnce(s, commandstest.Encode([]string{"SET", "v", strings.Repeat("v", 1<<20)}))
		}},
	"log": {
		"a log of 100,000 entries",
		func(s *commandstest.Server) { repeatCalls(s, 100_000, "CL.SLIDINGLOG log 100000 1000000") },
	},
	"leases": {"10,000 leases of one key",
		func(s *commandstest.Server) { repeatCalls(s, 10_000, "CL.ACQUIRE leases 10000 100000 holder%d") }},
	"manyleases": {"10,000 leases of each of 64 keys", func(s *commandstest.Server) {
		repeatCalls(s, 10_000, "CL.ACQUIRE leases 10000 100000 holder%d")
		repeatCalls(s, 65, "COPY leases leases%d")
	}},
	"holds": {"1,000 open holds of one key", func(s *commandstest.Server) {
		repeatCalls(s, 1000, "CL.SLIDINGLOG holds 4000 1000000 1 HOLD id%d 1h")
	}},
	"manyholds": {"1,000 open holds of each of 64 keys", func(s *commandstest.Server) {
		for i := range 64 {
			repeatCalls(s, 1000, fmt.Sprintf("CL.SLIDINGLOG holds%d 4000 1000000 1 HOLD id%%d 1h", i+1))
		}
	}},
	"keys": {"10,000 keys", func(s *commandstest.Server) { repeatCalls(s, 10_000, "SET key%d x") }},
	"day": {"the history of a day", func(s *commandstest.Server) {
		repeatCalls(s, 1, "CL.HISTORY *\r\nCL.TAKE subject api")
		s.Clock.Advance(25 * time.Hour)
	}},
	"databases": {"keys in all 16 databases", func(s *commandstest.Server) {
		repeatCalls(s, 16, "SELECT %[1]d\r\nSET key x")
	}},
	"clients": {"5,000 clients", func(s *commandstest.Server) {
		for range 5000 {
			s.Connect()
		}
	}},
	"watched": {"2,000 clients watch k", func(s *commandstest.Server) { dialMany(s, 2000, "WATCH k") }},
	"broadcast": {"2,000 clients are told of every change (TRACKING BCAST)", func(s *commandstest.Server) {
		dialMany(s, 2000, "HELLO 3\r\nCLIENT TRACKING ON BCAST")
	}},
	"tracked": {"2,000 clients have read k",
		func(s *commandstest.Server) { dialMany(s, 2000, "HELLO 3\r\nCLIENT TRACKING ON\r\nGET k") }},
	"channels": {"20 clients listen to 4,000 channels each", func(s *commandstest.Server) {
		dialMany(s, 20, "SUBSCRIBE ch"+numbered(" c%d", 999)+"\r\nSUBSCRIBE"+numbered(" d%d", 1000)+
			"\r\nSUBSCRIBE"+numbered(" e%d", 1000)+"\r\nSUBSCRIBE"+numbered(" f%d", 999))
	}},
	"audience": {"8 clients listen to ch", func(s *commandstest.Server) { dialMany(s, 8, "SUBSCRIBE ch") }},
	"unread": {
		"50 clients that do not read listen to ch",
		func(s *commandstest.Server) { dialMany(s, 50, "SUBSCRIBE ch") },
	},
	"patterns": {"20 clients listen to a pattern each", func(s *commandstest.Server) {
		for i := range 20 {
			dialMany(s, 1, fmt.Sprintf("PSUBSCRIBE *a*%d*b", i))
		}
	}},
	"overrides": {"overrides with costly patterns", usePatterns},
	"users": {"200 users of 100 rules each", func(s *commandstest.Server) {
		repeatCalls(s, 200, "ACL SETUSER user%d on >secret +@all -@all"+numbered(" ~pattern%d:*", 100))
	}},
}

// usePatterns puts three policies in force: long with 100 overrides, short with ten, and many with the largest
// number of limits. Each pattern matches the beginning of a subject of many k at each of its bytes.
func usePatterns(s *commandstest.Server) {
	overrides := func(n, length int) (text string) {
		for i := range n {
			text += fmt.Sprintf("{subject: '*%s%dx', blocked: true}, ", strings.Repeat("k", length), i)
		}
		return "{limits: [{fixed: {limit: 1, period: 1s}}], overrides: [" + text + "]}"
	}
	s.Policies.Read = func() ([]policies.File, error) {
		text := "policies: {long: " + overrides(100, 250) + ", short: " + overrides(10, 40) +
			", many: {limits: [" + numbered("{name: n%d, throttle: {burst: 99, rate: 9/1s}}, ", policies.MaxLimits) + "]}}"
		return []policies.File{{Name: "p.yaml", Text: []byte(text)}}, nil
	}
	if _, err := s.Policies.Reload(); err != nil {
		panic(err)
	}
}

// sendOnce sends input as a client that then disconnects.
func sendOnce(s *commandstest.Server, input []byte) {
	c := s.Connect()
	_ = c.Send(input)
	c.Session.Close()
}

// repeat sends a line n times as one client; a verb in it is replaced by a counter.
func repeatCalls(s *commandstest.Server, n int, line string) {
	c := s.Connect()
	for i := range n {
		said := line
		if strings.Contains(line, "%") {
			said = fmt.Sprintf(line, i)
		}
		s.Clock.Advance(1) // entries of a log at the same instant would become one
		_ = c.Send([]byte(said + "\r\n"))
		c.Read()
		c.Received = nil
	}
	c.Session.Close()
}

// dialMany connects n clients that send lines and stay connected.
func dialMany(s *commandstest.Server, n int, lines string) {
	for range n {
		c := s.Connect()
		_ = c.Send([]byte(lines + "\r\n"))
		c.Read()
		c.Received = nil
	}
}

// worstCalls are the worst calls of all rows for which derivedWorst derives none. A row may have
// several.
var worstCalls = append([]worst{
	{row: "cl.throttle", call: "CL.THROTTLE {64K} 9 9 9 9 UPTO MS", where: onLoop},
	{row: "cl.fixed", call: "CL.FIXED {64K} 9 9 9 UPTO MS", where: onLoop},
	{row: "cl.sliding", call: "CL.SLIDING {64K} 9 9 9 UPTO MS", where: onLoop},
	{row: "cl.slidinglog", stage: "log", call: "CL.SLIDINGLOG log 100000 1000000 1 PEEK MS", where: onLoop},
	{row: "cl.quota", call: "CL.QUOTA {64K} 9 YEAR@America/Argentina/ComodRivadavia 9 UPTO MS", where: onLoop},
	{row: "cl.acquire", stage: "leases", call: "CL.ACQUIRE leases 10000 99999 holder1 1", where: onLoop},
	{row: "cl.acquire", stage: "leases", call: "CL.ACQUIRE leases 10000 99999 other 10000", where: onLoop},
	{row: "cl.renew", stage: "leases", call: "CL.RENEW leases 999999 holder1", where: onLoop},
	{row: "cl.release", stage: "leases", call: "CL.RELEASE leases holder1", where: onLoop},
	{row: "cl.holds", stage: "holds", call: "CL.HOLDS holds", where: offLoop},
	{row: "cl.slidinglog", stage: "holds", call: "CL.SLIDINGLOG holds 4000 1000000 0 SETTLE id1", where: onLoop},
	{row: "cl.holders", stage: "leases", call: "CL.HOLDERS leases", where: offLoop},
	{row: "cl.all", call: "CL.ALL 64 (FIXED {64K#} 9 9 1)*64", where: offLoop},
	{row: "cl.all", call: "CL.ALL 64 (FIXED {1K#} 9 9 1)*64 ID x", where: onLoop},
	{row: "cl.all", stage: "manyleases", call: "CL.ALL 64 (ACQUIRE leases# 10000 99999 holder1 1)*64", where: offLoop},
	{row: "cl.all", stage: "manyleases", call: "CL.ALL 32 (ACQUIRE leases# 10000 99999 holder1 1)*32", where: onLoop},
	{row: "cl.all", stage: "manyleases", call: "CL.ALL 32 (ACQUIRE leases# 10000 99999 other 10000)*32", where: onLoop},
	{row: "cl.all", call: "CL.ALL 64 (TAKE {64K#} login 1)*64", where: offLoop},
	{row: "cl.all", stage: "manyholds", call: "CL.ALL 64 (SLIDINGLOG holds# 4000 1000000 0)*64 SETTLE id1", where: offLoop},
	{row: "cl.all", stage: "manyholds", call: "CL.ALL 2 (SLIDINGLOG holds# 4000 1000000 0)*2 SETTLE id2", where: onLoop},
	{row: "cl.all", call: "CL.ALL 32 (TAKE subject# pair 1)*32 ID x", where: onLoop},
	{row: "cl.all", call: "CL.ALL 32 (TAKE subject# pair 1)*32 VERBOSE", where: onLoop},
	{row: "cl.take", call: "CL.TAKE {64K} api 9 UPTO MS VERBOSE LEAVE 1 ID x", where: onLoop},
	{row: "cl.take", stage: "overrides", call: "CL.TAKE " + strings.Repeat("k", 50) + " long", where: offLoop},
	{row: "cl.take", stage: "overrides", call: "CL.TAKE " + strings.Repeat("k", 23) + " short", where: onLoop},
	{row: "cl.all", stage: "overrides", call: "CL.ALL 64 (TAKE " + strings.Repeat("k", 40) + "# long 1)*64",
		where: offLoop},
	{row: "cl.all", stage: "overrides", call: "CL.ALL 1 TAKE kkkk short 1", where: onLoop},
	{row: "cl.take", stage: "overrides", call: "CL.TAKE subject many", where: onLoop},
	{row: "cl.take", stage: "overrides", call: "CL.TAKE subject many 1 VERBOSE", where: onLoop},
	{row: "cl.all", stage: "overrides", call: "CL.ALL 4 (TAKE subject# many 1)*4 VERBOSE", where: onLoop},
	{row: "cl.exempt", call: "CL.EXEMPT {64K} api 9 reason", where: onLoop},
	{row: "cl.ban", call: "CL.BAN {64K} api 9 reason", where: onLoop},
	{row: "cl.pardon", call: "CL.PARDON {64K} api", where: onLoop},
	{row: "cl.plan", call: "CL.PLAN {64K} plans pro 9 reason", where: onLoop},
	{row: "cl.grant", stage: "overrides", call: "CL.GRANT " + strings.Repeat("k", 50) + " long fixed 9 reason",
		where: offLoop},
	{row: "cl.bans", stage: "keys", call: "CL.BANS api 1000", where: offLoop},
	{row: "cl.history", stage: "day", call: "CL.HISTORY {all} MINUTES COUNT 1440", where: offLoop},
	{row: "cl.explain", stage: "manyholds", call: "CL.EXPLAIN CL.ALL 64 (SLIDINGLOG holds# 4000 1000000 1)*64",
		where: offLoop},
	{row: "cl.explain", stage: "manyleases", call: "CL.EXPLAIN CL.ALL 64 (ACQUIRE leases# 10000 99999 other 10000)*64",
		where: offLoop},
	{row: "cl.explain", stage: "overrides", call: "CL.EXPLAIN CL.ALL 4 (TAKE subject# many 1)*4", where: offLoop},
	{row: "cl.policy|list", call: "CL.POLICY LIST", where: offLoop},
	{row: "cl.policy|get", call: "CL.POLICY GET api", where: offLoop},
	{row: "cl.policy|test", stage: "overrides", call: "CL.POLICY TEST {64K} long", where: offLoop},
	{row: "cl.policy|reload", call: "CL.POLICY RELOAD", where: offLoop},
	{row: "cl.policy|help", call: "CL.POLICY HELP", where: onLoop},
	{row: "gcra", call: "GCRA {64K} 9 9 9 TOKENS 9", where: onLoop},
	{row: "cl.inspect", stage: "leases", call: "CL.INSPECT leases", where: onLoop},
	{row: "cl.top", stage: "keys", call: "CL.TOP SEEN 100", where: offLoop},

	{row: "incr", call: "INCR {64K}", where: onLoop},
	{row: "incr", stage: "watched", call: "INCR k", where: onLoop},
	{row: "incr", stage: "broadcast", call: "INCR k", where: onLoop},
	{row: "incr", stage: "tracked", call: "INCR k", where: onLoop},
	{row: "incrby", call: "INCRBY {64K} 1", where: onLoop},
	{row: "decr", call: "DECR {64K}", where: onLoop},
	{row: "decrby", call: "DECRBY {64K} 1", where: onLoop},
	{row: "incrbyfloat", call: "INCRBYFLOAT {64K} 1e300", where: onLoop},
	{row: "increx", call: "INCREX {64K} BYFLOAT 1e-300 EX 100", where: onLoop},
	{row: "get", stage: "value", call: "GET v", where: onLoop},
	{row: "set", call: "SET {64K} {1M} GET", where: onLoop},
	{row: "setnx", call: "SETNX {64K} {1M}", where: onLoop},
	{row: "setex", call: "SETEX {64K} 9 {1M}", where: onLoop},
	{row: "psetex", call: "PSETEX {64K} 9 {1M}", where: onLoop},
	{row: "getset", stage: "value", call: "GETSET v {1M}", where: onLoop},
	{row: "getdel", stage: "value", call: "GETDEL v", where: onLoop},
	{row: "getex", stage: "value", call: "GETEX v EX 100", where: onLoop},
	{row: "mget", stage: "value", call: "MGET v*60", where: offLoop},
	{row: "mset", call: "MSET (k {1M})*14", where: offLoop},
	{row: "msetnx", call: "MSETNX (k {1M})*14", where: offLoop},
	{row: "append", stage: "value", call: "APPEND v x", where: refused},
	{row: "msetex", call: "MSETEX 14 (k {1M})*14 EX 100", where: offLoop},
	{row: "digest", stage: "value", call: "DIGEST v", where: onLoop},
	{row: "delex", stage: "value", call: "DELEX v IFEQ {1M}", where: offLoop},
	{row: "getrange", stage: "value", call: "GETRANGE v 0 -1", where: onLoop},
	{row: "setrange", stage: "value", call: "SETRANGE v 5 x", where: onLoop},
	{row: "substr", stage: "value", call: "SUBSTR v 0 -1", where: onLoop},

	{row: "exists", call: "EXISTS {64K#}*240", where: offLoop},
	{row: "exists", call: "EXISTS k*100000", where: offLoop,
		exemption: "the arguments of a long call are parsed, and moved: 2 ms"},
	{row: "del", call: "DEL {64K#}*240", where: offLoop},
	{row: "del", call: "DEL k*100000", where: offLoop,
		exemption: "the arguments of a long call are parsed, and moved: 2 ms"},
	{row: "unlink", call: "UNLINK {64K#}*240", where: offLoop},
	{row: "touch", call: "TOUCH {64K#}*240", where: offLoop},
	{row: "type", call: "TYPE {64K}", where: onLoop},
	{row: "rename", stage: "log", call: "RENAME log other", where: onLoop},
	{row: "rename", stage: "leases", call: "RENAME leases other", where: onLoop},
	{row: "renamenx", stage: "leases", call: "RENAMENX leases other", where: onLoop},
	{row: "copy", stage: "log", call: "COPY log other DB 1 REPLACE", where: onLoop},
	{row: "copy", stage: "leases", call: "COPY leases other REPLACE", where: onLoop},
	{row: "move", stage: "log", call: "MOVE log 1", where: onLoop},
	{row: "move", stage: "leases", call: "MOVE leases 1", where: onLoop},
	{row: "dump", stage: "value", call: "DUMP v", where: offLoop},
	{row: "dump", stage: "log", call: "DUMP log", where: offLoop},
	{row: "dump", stage: "leases", call: "DUMP leases", where: offLoop},
	{row: "restore", call: "RESTORE {64K} 0 {payload of 1 MiB}", where: offLoop},
	{row: "restore", call: "RESTORE {64K} 0 {payload of 3 KiB}", where: onLoop},
	{row: "restore", call: "RESTORE k 0 {compressed payload}", where: offLoop},
	{row: "restore", call: "RESTORE k 0 {payload of 10,000 leases}", where: offLoop},
	{row: "restore", call: "RESTORE k 0 {payload of 100 leases}", where: onLoop},
	{row: "expire", call: "EXPIRE {64K} 9 NX", where: onLoop},
	{row: "pexpire", call: "PEXPIRE {64K} 9 NX", where: onLoop},
	{row: "expireat", call: "EXPIREAT {64K} 9 NX", where: onLoop},
	{row: "pexpireat", call: "PEXPIREAT {64K} 9 NX", where: onLoop},
	{row: "persist", call: "PERSIST {64K}", where: onLoop},
	{row: "ttl", call: "TTL {64K}", where: onLoop},
	{row: "pttl", call: "PTTL {64K}", where: onLoop},
	{row: "expiretime", call: "EXPIRETIME {64K}", where: onLoop},
	{row: "pexpiretime", call: "PEXPIRETIME {64K}", where: onLoop},
	{row: "keys", stage: "keys", call: "KEYS {all}", where: offLoop},
	{row: "scan", stage: "keys", call: "SCAN 0 MATCH {all} COUNT 10000", where: offLoop},
	{row: "randomkey", stage: "keys", call: "RANDOMKEY", where: offLoop},
	{row: "dbsize", stage: "keys", call: "DBSIZE", where: onLoop},
	{row: "flushdb", stage: "keys", call: "FLUSHDB", where: onLoop},
	{row: "flushall", stage: "databases", call: "FLUSHALL", where: onLoop},
	{row: "swapdb", stage: "databases", call: "SWAPDB 0 1", where: onLoop},

	{row: "multi", call: "MULTI", where: onLoop},
	{row: "exec", call: "EXEC", where: refused},
	{row: "discard", call: "DISCARD", where: refused},
	{row: "watch", call: "WATCH {1K#}*1000", where: onLoop},
	{row: "unwatch", call: "UNWATCH", where: onLoop},
	{row: "subscribe", call: "SUBSCRIBE {1K#}*1000", where: onLoop},
	{row: "subscribe", stage: "channels", call: "SUBSCRIBE {1K#}*1000", where: onLoop},
	{row: "unsubscribe", stage: "channels", call: "UNSUBSCRIBE c*1000", where: onLoop},
	{row: "psubscribe", call: "PSUBSCRIBE {1K#}*1000", where: onLoop},
	{row: "punsubscribe", call: "PUNSUBSCRIBE c*1000", where: onLoop},
	{row: "publish", stage: "audience", call: "PUBLISH ch {1M}", where: offLoop},
	{row: "publish", stage: "unread", call: "PUBLISH ch {60K}", where: offLoop},
	{row: "publish", stage: "patterns", call: "PUBLISH {64K} x", where: offLoop},
	{row: "pubsub|channels", stage: "channels", call: "PUBSUB CHANNELS {all}", where: offLoop},
	{row: "pubsub|numsub", stage: "channels", call: "PUBSUB NUMSUB c1*1000", where: onLoop},
	{row: "pubsub|numpat", call: "PUBSUB NUMPAT", where: onLoop},
	{row: "pubsub|shardchannels", stage: "channels", call: "PUBSUB SHARDCHANNELS {all}", where: offLoop},
	{row: "pubsub|shardnumsub", stage: "channels", call: "PUBSUB SHARDNUMSUB c1*1000", where: onLoop},
	{row: "pubsub|help", call: "PUBSUB HELP", where: onLoop},
	{row: "ssubscribe", call: "SSUBSCRIBE {1K#}*1000", where: onLoop},
	{row: "sunsubscribe", call: "SUNSUBSCRIBE c*1000", where: onLoop},
	{row: "spublish", call: "SPUBLISH {64K} {1M}", where: onLoop},

	{row: "ping", call: "PING {1M}", where: onLoop},
	{row: "echo", call: "ECHO {1M}", where: onLoop},
	{row: "hello", call: "HELLO 3 SETNAME {1M}", where: refused,
		exemption: "an argument of 1 MiB is checked byte by byte: 3 ms"},
	{row: "auth", call: "AUTH {1M} {1M}", where: refused},
	{row: "acl|cat", call: "ACL CAT read", where: onLoop},
	{row: "acl|deluser", stage: "users", call: "ACL DELUSER" + numbered(" user%d", 120), where: offLoop},
	{row: "acl|dryrun", stage: "users", call: "ACL DRYRUN user1 DEL {64K}*120", where: offLoop},
	{row: "acl|genpass", call: "ACL GENPASS 1024", where: onLoop},
	{row: "acl|getuser", stage: "users", call: "ACL GETUSER user1", where: offLoop},
	{row: "acl|list", stage: "users", call: "ACL LIST", where: offLoop},
	{row: "acl|load", call: "ACL LOAD", where: refused},
	{row: "acl|log", call: "ACL LOG 1000", where: offLoop},
	{row: "acl|save", call: "ACL SAVE", where: refused},
	{row: "acl|setuser", call: "ACL SETUSER u" + numbered(" ~pattern%d", 120), where: offLoop},
	{row: "acl|users", stage: "users", call: "ACL USERS", where: offLoop},
	{row: "acl|whoami", call: "ACL WHOAMI", where: onLoop},
	{row: "acl|help", call: "ACL HELP", where: onLoop},
	{row: "select", call: "SELECT 15", where: onLoop},
	{row: "client|getname", call: "CLIENT GETNAME", where: onLoop},
	{row: "client|id", call: "CLIENT ID", where: onLoop},
	{row: "client|info", call: "CLIENT INFO", where: onLoop},
	{row: "client|kill", stage: "clients", call: "CLIENT KILL TYPE pubsub", where: offLoop},
	{row: "client|list", stage: "clients", call: "CLIENT LIST", where: offLoop},
	{row: "client|no-evict", call: "CLIENT NO-EVICT ON", where: onLoop},
	{row: "client|no-touch", call: "CLIENT NO-TOUCH ON", where: onLoop},
	{row: "client|pause", call: "CLIENT PAUSE 1 WRITE", where: onLoop},
	{row: "client|reply", call: "CLIENT REPLY ON", where: onLoop},
	{row: "client|setinfo", call: "CLIENT SETINFO LIB-NAME {1M}", where: refused,
		exemption: "an argument of 1 MiB is checked byte by byte: 3 ms"},
	{row: "client|setname", call: "CLIENT SETNAME {1M}", where: refused,
		exemption: "an argument of 1 MiB is checked byte by byte: 3 ms"},
	{row: "client|unblock", stage: "clients", call: "CLIENT UNBLOCK 1", where: onLoop},
	{row: "client|unpause", call: "CLIENT UNPAUSE", where: onLoop},
	{row: "client|tracking", call: "CLIENT TRACKING ON BCAST" + numbered(" PREFIX p%03d", 60), where: onLoop},
	{row: "client|caching", call: "CLIENT CACHING YES", where: refused},
	{row: "client|trackinginfo", call: "CLIENT TRACKINGINFO", where: onLoop},
	{row: "client|getredir", call: "CLIENT GETREDIR", where: onLoop},
	{row: "client|help", call: "CLIENT HELP", where: onLoop},
	{row: "reset", call: "RESET", where: onLoop},
	{row: "quit", call: "QUIT", where: onLoop},

	{row: "command", call: "COMMAND", where: onLoop},
	{row: "command|count", call: "COMMAND COUNT", where: onLoop},
	{row: "command|docs", call: "COMMAND DOCS", where: offLoop},
	{row: "command|docs", call: "COMMAND DOCS client*126", where: offLoop},
	{row: "command|getkeys", call: "COMMAND GETKEYS DEL {64K}*120", where: offLoop},
	{row: "command|getkeysandflags", call: "COMMAND GETKEYSANDFLAGS DEL {64K}*120", where: offLoop},
	{row: "command|info", call: "COMMAND INFO cluster*126", where: offLoop},
	{row: "command|list", call: "COMMAND LIST FILTERBY PATTERN {1M}", where: refused,
		exemption: "65,536 steps of matching: 0.5 ms"},
	{row: "command|list", call: "COMMAND LIST FILTERBY PATTERN *[" + strings.Repeat("a", 1000), where: onLoop,
		exemption: "65,536 steps of matching: 0.5 ms"},
	{row: "command|list", call: "COMMAND LIST FILTERBY ACLCAT {1M}", where: offLoop},
	{row: "command|help", call: "COMMAND HELP", where: onLoop},
	{row: "info", stage: "keys", call: "INFO everything", where: onLoop},
	{row: "info", stage: "keys", call: "INFO all*126", where: onLoop},
	{row: "config|get", call: "CONFIG GET {1M}", where: refused},
	{row: "config|get", call: "CONFIG GET {64K}*126", where: refused},
	{row: "config|get", call: "CONFIG GET {all}*126", where: onLoop,
		exemption: "65,536 steps of matching at most: 0.5 ms"},
	{row: "config|resetstat", call: "CONFIG RESETSTAT", where: onLoop},
	{row: "config|rewrite", call: "CONFIG REWRITE", where: refused},
	{row: "config|set", call: "CONFIG SET port {1M}", where: refused},
	{row: "config|help", call: "CONFIG HELP", where: onLoop},
	{row: "time", call: "TIME", where: onLoop},
	{row: "wait", call: "WAIT 0 0", where: onLoop},
	{row: "waitaof", call: "WAITAOF 0 0 0", where: onLoop},
	{row: "object|encoding", stage: "value", call: "OBJECT ENCODING v", where: onLoop},
	{row: "object|freq", call: "OBJECT FREQ {64K}", where: onLoop},
	{row: "object|idletime", call: "OBJECT IDLETIME {64K}", where: onLoop},
	{row: "object|refcount", stage: "value", call: "OBJECT REFCOUNT v", where: onLoop},
	{row: "object|help", call: "OBJECT HELP", where: onLoop},
	{row: "memory|doctor", call: "MEMORY DOCTOR", where: onLoop},
	{row: "memory|purge", call: "MEMORY PURGE", where: offLoop},
	{row: "memory|stats", stage: "databases", call: "MEMORY STATS", where: onLoop},
	{row: "memory|usage", stage: "leases", call: "MEMORY USAGE leases SAMPLES 0", where: onLoop},
	{row: "memory|help", call: "MEMORY HELP", where: onLoop},
	{row: "role", call: "ROLE", where: onLoop},
	{row: "lastsave", call: "LASTSAVE", where: onLoop},
	{row: "save", call: "SAVE", where: refused},
	{row: "bgsave", call: "BGSAVE", where: refused},
	{row: "bgrewriteaof", call: "BGREWRITEAOF", where: refused},
	{row: "lolwut", call: "LOLWUT {1M}", where: offLoop},
	{row: "function|flush", call: "FUNCTION FLUSH", where: onLoop},
	{row: "function|help", call: "FUNCTION HELP", where: onLoop},
	{row: "script|flush", call: "SCRIPT FLUSH", where: onLoop},
	{row: "script|help", call: "SCRIPT HELP", where: onLoop},
	{row: "module|list", call: "MODULE LIST", where: onLoop},
	{row: "module|help", call: "MODULE HELP", where: onLoop},
	{row: "shutdown", call: "SHUTDOWN ABORT", where: refused},
	{row: "debug", call: "DEBUG LOG {1M}", where: onLoop},
	{row: "slowlog|get", call: "SLOWLOG GET -1", where: offLoop},
	{row: "slowlog|len", call: "SLOWLOG LEN", where: onLoop},
	{row: "slowlog|reset", call: "SLOWLOG RESET", where: onLoop},
	{row: "slowlog|help", call: "SLOWLOG HELP", where: onLoop},
	{row: "latency|doctor", call: "LATENCY DOCTOR", where: onLoop},
	{row: "latency|histogram", call: "LATENCY HISTOGRAM", where: onLoop},
	{row: "latency|history", call: "LATENCY HISTORY {1M}", where: onLoop},
	{row: "latency|latest", call: "LATENCY LATEST", where: onLoop},
	{row: "latency|reset", call: "LATENCY RESET {64K}*126", where: onLoop},
	{row: "latency|help", call: "LATENCY HELP", where: onLoop},
	{row: "monitor", call: "MONITOR", where: onLoop},

	{row: "readonly", call: "READONLY", where: refused},
	{row: "readwrite", call: "READWRITE", where: refused},
	{row: "asking", call: "ASKING", where: refused},
	{row: "cluster|help", call: "CLUSTER HELP", where: refused},
	{row: "cluster", call: "CLUSTER {1M}", where: refused},
}, clusterCalls()...)

// unauthenticatedCalls are the worst calls of a client that has not logged in, whose input is
// bounded to ten words of 16 KiB per call, and to 32 KiB together.
var unauthenticatedCalls = []worst{
	{row: "auth", call: "AUTH {16K}", where: refused},
	{row: "auth", call: "AUTH default {15K}", where: refused},
	{row: "auth", call: "AUTH {15K} {16K}", where: refused},
	{row: "auth", call: "AUTH x", where: refused},
	{row: "hello", call: "HELLO 3 AUTH {15K} {16K}", where: refused},
	{row: "hello", call: "HELLO 3 AUTH default {15K} SETNAME {16K}", where: refused},
	{row: "hello", call: "HELLO 3 SETNAME {16K}", where: refused},
	{row: "reset", call: "RESET", where: onLoop},
	{row: "quit", call: "QUIT {15K} {15K} x*7", where: onLoop},
	{row: "get", call: "GET {16K}", where: refused},
	{row: "mset", call: "MSET x*7 {16K} {15K}", where: refused},
	{row: "unknown", call: "{16K} {15K} x*8", where: refused},
	{row: "too many", call: "DEL x*100000", where: refused},
	{row: "too long", call: "SET k {1M}", where: refused},
}

// clusterCalls are the calls of CLUSTER's subcommands, which are refused.
func clusterCalls() (calls []worst) {
	for _, row := range commandstest.TableOf().ByName["cluster"].Subs {
		if row.Name != "cluster|help" {
			calls = append(calls, worst{row.Name, "", row.Upper() + strings.Repeat(" {1M}", len(row.Args)), refused, ""})
		}
	}
	return calls
}
