package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// absent is what a show returns for a key that does not exist.
const absent = "nil"

// show is a call that returns the state of a key.
type show struct {
	database  int
	call, key string
}

// plan is the next step of a subject.
type plan struct {
	calls []string // the last call's reply is the step's reply
	want  string   // prefix of the step's reply
	after []string // results of the shows after the step
	ttl   time.Duration
	whole bool // the step changes all keys of a subject whose keys are apart
}

// subject is a group of keys that one client changes.
type subject struct {
	history
	shows []show
	state []string // results of the shows after the last step
	// next returns the next step. No other step writes the value v.
	next func(r *rand.Rand, v int, state []string) plan
}

// subjects are the subjects of a client.
func subjects(client int) (all []*subject) {
	add := func(kind string, calls []string, next func(key []string) func(*rand.Rand, int, []string) plan) {
		s := &subject{history: history{name: fmt.Sprintf("%s:%d", kind, client)}}
		var keys []string
		for i, call := range calls {
			key, database := fmt.Sprintf("%s:%d", s.name, i), 0
			switch kind {
			case "moved":
				key, database = s.name, i
			case "expiring":
				key = s.name
			case "standing":
				key, s.apart = "p:{"+s.name+"}:"+[]string{"standing", "fixed"}[i], true
			}
			keys = append(keys, key)
			s.shows = append(s.shows, show{database, strings.ReplaceAll(call, "$", key), key})
		}
		s.next = next(keys)
		all = append(all, s)
	}
	add("counter", get(1), counter)
	add("value", get(1), value)
	add("expiring", append(get(1), "PTTL $"), expiring)
	add("throttle", []string{"CL.THROTTLE $ 9999 1 100000 0"}, limiter("CL.THROTTLE $ 9999 1 100000 1", 10000))
	add("fixed", []string{"CL.FIXED $ 1000 1000000 0"}, limiter("CL.FIXED $ 1000 1000000 1", 1000))
	add("sliding", []string{"CL.SLIDING $ 1000 1000000 0"}, limiter("CL.SLIDING $ 1000 1000000 1", 1000))
	add("log", []string{"CL.SLIDINGLOG $ 3000 1000000 0"}, limiter("CL.SLIDINGLOG $ 3000 1000000 1", 3000))
	add("quota", []string{"CL.QUOTA $ 1000 1000000000 0"}, limiter("CL.QUOTA $ 1000 1000000000 1", 1000))
	add("leases", []string{"CL.HOLDERS $"}, leases)
	add("standing", []string{"CL.INSPECT $", fmt.Sprintf("CL.FIXED $ %d 1000000 0", takesOf)}, standings)
	add("group", get(4), group)
	add("mset", get(4), mset)
	add("ring", get(8), ring)
	add("renamed", get(2), renamed)
	add("moved", get(2), moved)
	add("all", []string{"CL.THROTTLE $ 9999 1 100000 0", "CL.FIXED $ 10000 1000000 0", "CL.SLIDING $ 10000 1000000 0",
		"CL.SLIDINGLOG $ 10000 1000000 0", "CL.ACQUIRE $ 10000 1000000 asks 0"}, allLimiters)
	return all
}

// nothing returns what the shows return while no key exists.
func (s *subject) nothing() (state []string) {
	for _, show := range s.shows {
		words := strings.Fields(show.call)
		switch words[0] {
		case "GET", "CL.INSPECT":
			state = append(state, absent)
		case "CL.THROTTLE":
			burst, _ := strconv.Atoi(words[2])
			state = append(state, strconv.Itoa(burst+1))
		case "CL.FIXED", "CL.SLIDING", "CL.SLIDINGLOG", "CL.QUOTA", "CL.ACQUIRE":
			state = append(state, words[2])
		default: // PTTL, CL.HOLDERS
			state = append(state, "")
		}
	}
	return state
}

func get(keys int) []string { return slices.Repeat([]string{"GET $"}, keys) }

func counter(key []string) func(*rand.Rand, int, []string) plan {
	return func(_ *rand.Rand, _ int, state []string) plan {
		n, _ := strconv.Atoi(state[0]) // 0 if absent
		n++
		return plan{calls: []string{"INCR " + key[0]}, want: strconv.Itoa(n), after: []string{strconv.Itoa(n)}}
	}
}

func value(key []string) func(*rand.Rand, int, []string) plan {
	return func(r *rand.Rand, v int, _ []string) plan {
		if r.IntN(4) == 0 {
			return plan{calls: []string{"DEL " + key[0]}, after: []string{absent}}
		}
		text := fmt.Sprint("v", v, strings.Repeat("x", r.IntN(40)))
		return plan{calls: []string{"SET " + key[0] + " " + text}, want: "+OK", after: []string{text}}
	}
}

// expiring gives a key times to live of many minutes.
func expiring(key []string) func(*rand.Rand, int, []string) plan {
	return func(r *rand.Rand, v int, state []string) plan {
		ttl := time.Hour + time.Duration(r.IntN(int(time.Hour/time.Millisecond)))*time.Millisecond
		in := fmt.Sprint(ttl.Milliseconds())
		switch {
		case state[0] == absent || r.IntN(3) == 0:
			text := fmt.Sprint("v", v)
			return plan{calls: []string{"SET " + key[0] + " " + text + " PX " + in}, want: "+OK", after: []string{text, ""},
				ttl: ttl}
		case r.IntN(3) == 0:
			return plan{calls: []string{"PERSIST " + key[0]}, after: []string{state[0], ""}}
		}
		return plan{calls: []string{"PEXPIRE " + key[0] + " " + in}, want: "1", after: []string{state[0], ""}, ttl: ttl}
	}
}

// limiter takes from a limiter until little remains, and then removes it. The period is so long
// that no token is restored during a test.
func limiter(call string, limit int) func(key []string) func(*rand.Rand, int, []string) plan {
	return func(key []string) func(*rand.Rand, int, []string) plan {
		call := strings.ReplaceAll(call, "$", key[0])
		return func(_ *rand.Rand, _ int, state []string) plan {
			n, _ := strconv.Atoi(state[0])
			if n == 0 {
				return plan{calls: []string{"DEL " + key[0]}, want: "1", after: []string{strconv.Itoa(limit)}}
			}
			return plan{calls: []string{call}, want: fmt.Sprintf("[0, %d, %d, ", limit, n-1),
				after: []string{strconv.Itoa(n - 1)}}
		}
	}
}

// maxLeases is the number of leases of a key. Their holders have long names, so that a pass writes
// only the leases that have changed.
const maxLeases = 60

func leases(key []string) func(*rand.Rand, int, []string) plan {
	return func(r *rand.Rand, v int, state []string) plan {
		var held []string
		if state[0] != "" {
			held = strings.Split(state[0], ",")
		}
		if len(held) == maxLeases || len(held) > 0 && r.IntN(4) == 0 {
			i := r.IntN(len(held))
			call := fmt.Sprintf("CL.RELEASE %s %s", key[0], holder(held[i]))
			return plan{calls: []string{call}, want: "1", after: []string{strings.Join(slices.Delete(held, i, i+1), ",")}}
		}
		name := strconv.Itoa(v)
		call := fmt.Sprintf("CL.ACQUIRE %s %d 1000000 %s", key[0], maxLeases, holder(name))
		return plan{calls: []string{call}, want: "[0, ", after: []string{strings.Join(append(held, name), ",")}}
	}
}

func holder(name string) string {
	return "holder-with-a-long-name-of-which-many-take-a-slab-of-memory:" + name
}

// group sets all keys to the same value, or removes some of them, in a transaction.
func group(key []string) func(*rand.Rand, int, []string) plan {
	return func(r *rand.Rand, v int, _ []string) plan {
		p := plan{calls: []string{"MULTI"}, want: "["}
		for _, k := range key {
			if r.IntN(4) == 0 {
				p.calls, p.after = append(p.calls, "DEL "+k), append(p.after, absent)
			} else {
				p.calls, p.after = append(p.calls, fmt.Sprint("SET ", k, " ", v)), append(p.after, strconv.Itoa(v))
			}
		}
		p.calls = append(p.calls, "EXEC")
		return p
	}
}

func mset(key []string) func(*rand.Rand, int, []string) plan {
	return func(_ *rand.Rand, v int, _ []string) plan {
		p := plan{calls: []string{"MSET"}, want: "+OK"}
		for _, k := range key {
			p.calls[0] += fmt.Sprint(" ", k, " ", v)
			p.after = append(p.after, strconv.Itoa(v))
		}
		return p
	}
}

// ring sets two neighbouring keys of a ring, then the second of them and the next key, and so on.
func ring(key []string) func(*rand.Rand, int, []string) plan {
	return func(_ *rand.Rand, v int, state []string) plan {
		latest := slices.MaxFunc(state, func(a, b string) int { return number(a) - number(b) })
		at := 0
		for i := range state {
			if state[i] == latest && state[(i+1)%len(state)] != latest {
				at = i // the second
			}
		}
		p := plan{want: "+OK", after: slices.Clone(state)}
		next := (at + 1) % len(state)
		p.calls = []string{fmt.Sprintf("MSET %s %d %s %d", key[at], v, key[next], v)}
		p.after[at], p.after[next] = strconv.Itoa(v), strconv.Itoa(v)
		return p
	}
}

// number returns a number, or -1 for a key that does not exist.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// alternate changes a key that is in one of two places, or moves it to the other.
func alternate(move func(from int) []string, change func(at int) []string) func(*rand.Rand, int, []string) plan {
	return func(r *rand.Rand, _ int, state []string) plan {
		at := 0
		if state[1] != absent {
			at = 1
		}
		if state[at] != absent && r.IntN(2) == 0 {
			return plan{calls: move(at), after: []string{state[1], state[0]}}
		}
		n := strconv.Itoa(max(number(state[at]), 0) + 1)
		after := []string{absent, absent}
		after[at] = n
		return plan{calls: change(at), want: n, after: after}
	}
}

func renamed(key []string) func(*rand.Rand, int, []string) plan {
	return alternate(func(from int) []string { return []string{"RENAME " + key[from] + " " + key[1-from]} },
		func(at int) []string { return []string{"INCR " + key[at]} })
}

// moved moves a key to another database. The connection returns to database 0 with the next step.
func moved(key []string) func(*rand.Rand, int, []string) plan {
	in := func(database int, call string) []string { return []string{fmt.Sprint("SELECT ", database), call} }
	return alternate(func(from int) []string { return in(from, fmt.Sprint("MOVE ", key[0], " ", 1-from)) },
		func(at int) []string { return in(at, "INCR "+key[0]) })
}

func allLimiters(key []string) func(*rand.Rand, int, []string) plan {
	return func(_ *rand.Rand, v int, state []string) plan {
		n, _ := strconv.Atoi(state[0])
		call := fmt.Sprintf("CL.ALL 5 THROTTLE %s 9999 1 100000 1 FIXED %s 10000 1000000 1 SLIDING %s 10000 1000000 1 "+
			"SLIDINGLOG %s 10000 1000000 1 FORCE ACQUIRE %s 10000 1000000 h%d 1", key[0], key[1], key[2], key[3], key[4], v)
		calls, want := []string{call}, "[0, -1, ["
		if n--; n < 0 {
			n, calls, want = 10000, append(append([]string{"MULTI"}, remove(key)...), "EXEC"), "["
		}
		return plan{calls: calls, want: want, after: slices.Repeat([]string{strconv.Itoa(n)}, len(key))}
	}
}

func remove(keys []string) (calls []string) {
	for _, key := range keys {
		calls = append(calls, "DEL "+key)
	}
	return calls
}
