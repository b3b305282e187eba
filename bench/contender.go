//go:build linux

package main

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// contender is a server, and the call with which it is measured.
type contender struct {
	name   string
	start  []string // the command, with {port}, {socket} and {dir} in it
	call   string   // with {key} and {limit} in it, and {sha} of the script
	script string   // Lua, loaded first
	keys   int      // 0: as many as the scenario has
	tcp    bool     // called over TCP even where the others are called over a Unix socket
}

const throttleCall = "CL.THROTTLE {key} {limit}"

// What {limit} stands for. limitLasting keeps a key for hours after one call: no key may expire
// while memory per key is measured.
const (
	limitUsual   = "15 30 60 1"
	limitLasting = "15 30 864000 1"
)

// inLua is GCRA as a script, like the scripts of rate limiters for a Redis without modules.
//
//go:embed gcra.lua
var inLua string

var redisServer = []string{"redis-server", "--save", "", "--appendonly", "no", "--port", "{port}", "--unixsocket",
	"{socket}"}

var (
	incr      = contender{name: report.Incr, start: redisServer, call: "INCR {key}"}
	incrAgain = contender{name: "redis-server INCR again", start: redisServer, call: "INCR {key}"}
	set       = contender{name: "redis-server SET", start: redisServer, call: "SET {key} 1"}
	lua       = contender{name: report.Lua, start: redisServer, script: inLua, call: "EVALSHA {sha} 1 {key} {limit}"}
)

// setExpiring is redis-server's cheapest call that creates a key with an expiry.
func setExpiring(after time.Duration) contender {
	return contender{name: "redis-server SET PX", start: redisServer,
		call: fmt.Sprint("SET {key} 1 PX ", after.Milliseconds())}
}

// throttle is cellserver's CL.THROTTLE, with which all other contenders are compared.
func (o *options) throttle() contender {
	return contender{name: report.Throttle,
		start: []string{o.server, "--loglevel", "warning", "--port", "{port}", "--unixsocket", "{socket}"},
		call:  throttleCall}
}

// limiters are cellserver with each of its limiters. CL.THROTTLE is the first, and takes part a second time.
// Every call is admitted, because a refused call changes nothing. A log holds the entries of one second. There
// are so few keys, logged, that each log is full, with a thousand entries.
func (o *options) limiters(logged int) []contender {
	all := o.calling(
		"CL.THROTTLE", "CL.THROTTLE {key} 100000 1 3600 1",
		"CL.THROTTLE again", "CL.THROTTLE {key} 100000 1 3600 1",
		"CL.FIXED", "CL.FIXED {key} 1000000 3600 1",
		"CL.SLIDING", "CL.SLIDING {key} 1000000 3600 1",
		"CL.SLIDINGLOG, few entries", "CL.SLIDINGLOG {key} 1000 1 1",
		"CL.ACQUIRE, a holder", "CL.ACQUIRE {key} 10 3600 worker",
		"CL.ACQUIRE, new holders", "CL.ACQUIRE {key} 1000 1 worker:__rand_int__",
		"CL.ALL of one", "CL.ALL 1 THROTTLE {key} 100000 1 3600 1",
		"CL.ALL of two", "CL.ALL 2 THROTTLE {key} 100000 1 3600 1 FIXED day:{key} 1000000 3600 1",
		"CL.SLIDINGLOG, limit 1000, full", "CL.SLIDINGLOG {key} 1000 1 1",
	)
	all[len(all)-1].keys = logged
	return all
}

// withOptions are cellserver with the limiters' options, and with calendar quotas. CL.FIXED takes part for
// comparison with the quotas. Every call has an ID token of its own.
func (o *options) withOptions() []contender {
	return o.calling(
		"CL.THROTTLE", "CL.THROTTLE {key} 100000 1 3600 1",
		"CL.THROTTLE again", "CL.THROTTLE {key} 100000 1 3600 1",
		"CL.THROTTLE, LEAVE", "CL.THROTTLE {key} 100000 1 3600 1 LEAVE 1",
		"CL.THROTTLE, ID", "CL.THROTTLE {key} 100000 1 3600 1 ID __rand_int__",
		"CL.FIXED", "CL.FIXED {key} 1000000 3600 1",
		"CL.QUOTA", "CL.QUOTA {key} 1000000 DAY@Europe/Berlin 1",
	)
}

// kept are cellserver with each of its limiters, called once per key. The keys stay.
func (o *options) kept() []contender {
	return o.calling(
		"CL.THROTTLE", "CL.THROTTLE {key} {limit}",
		"CL.FIXED", "CL.FIXED {key} 15 864000 1",
		"CL.SLIDING", "CL.SLIDING {key} 15 864000 1",
		"CL.SLIDINGLOG, one entry", "CL.SLIDINGLOG {key} 15 864000 1",
		"CL.ACQUIRE, a holder", "CL.ACQUIRE {key} 10 864000 worker",
		"INCR", "INCR {key}",
	)
}

// calling returns cellserver with each of these calls. In namesAndCalls, the name of a call precedes the call.
func (o *options) calling(namesAndCalls ...string) (contenders []contender) {
	for pair := range slices.Chunk(namesAndCalls, 2) {
		c := o.throttle().named(pair[0])
		c.call = pair[1]
		contenders = append(contenders, c)
	}
	return contenders
}

// field returns the contenders of a scenario: redis-server twice, cellserver, the others that the
// scenario adds, and the guests.
func (o *options) field(others ...contender) []contender {
	return append(append([]contender{incr, incrAgain, o.throttle()}, others...), o.guests()...)
}

// guests are the contenders that the command line names.
func (o *options) guests() (guests []contender) {
	if o.module != "" {
		loaded := append(redisServer[:len(redisServer):len(redisServer)], "--loadmodule", o.module)
		guests = append(guests, contender{name: "redis-server with module, CL.THROTTLE", start: loaded, call: throttleCall})
	}
	guests = append(guests, o.newer.instead(incr, lua)...)
	if o.other != "" {
		name, _, _ := strings.Cut(strings.TrimSpace(o.other), " ")
		guests = append(guests, contender{name: filepath.Base(name), start: []string{"sh", "-c", "exec " + o.other},
			call: o.otherCall})
	}
	return guests
}

// named returns the contender with another name, for a contender that takes part twice.
func (c contender) named(name string) contender {
	c.name = name
	return c
}

// callWith returns the call with everything filled in except the key.
func (c contender) callWith(limit, sha string) string {
	return strings.NewReplacer("{limit}", limit, "{sha}", sha).Replace(c.call)
}

// hasSocket reports whether the server listens on a Unix socket.
func (c contender) hasSocket() bool { return strings.Contains(strings.Join(c.start, " "), "{socket}") }

// entrant is a contender whose server is running.
type entrant struct {
	contender
	process *process
	call    string
	sha     string // the script's digest
	target  load.Target
}
