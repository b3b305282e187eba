package migrate

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/redcon"

	"cellserver/internal/store"
)

// model is the part of Redis that the old ways need and cellserver does not have: hashes, lists and
// sorted sets, with expiry on a clock that the test moves. TestModelIsRedis compares it with a
// redis-server.
type model struct {
	mu    sync.Mutex
	clock *store.StillClock
	keys  map[string]*entry
	table map[string]act
}

// act implements a command of Redis. It may change the key's entry, and gets the words behind the
// key.
type act func(e *entry, now int64, words []string) (reply any)

// entry is the value of a key. Without a value, the key does not exist.
type entry struct {
	value   any   // nil, string, hash, list or scores
	expires int64 // ns, 0 for never
}

type (
	hash   map[string]string
	list   []string // the head first
	scores map[string]float64
)

func newModel(clock *store.StillClock) *model {
	return &model{clock: clock, keys: map[string]*entry{}, table: map[string]act{
		"set": set, "incrby": incrBy, "del": del, "exists": exists, "expire": expire, "ttl": ttl,
		"hset": hSet, "hgetall": hGetAll, "hmget": hmGet,
		"lpush": lPush, "rpop": rPop, "llen": lLen,
		"zadd": zAdd, "zremrangebyscore": zRemRangeByScore, "zcard": zCard,
	}}
}

func (m *model) do(words []string) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	command := m.table[strings.ToLower(words[0])]
	if command == nil || len(words) < 2 {
		return errors.New("ERR unknown command")
	}
	key, now := words[1], m.clock.Now()
	e := m.keys[key]
	if e == nil || e.expires != 0 && e.expires <= now {
		e = &entry{}
	}
	reply := command(e, now, words[2:])
	if m.keys[key] = e; e.isEmpty() || e.expires != 0 && e.expires <= now {
		delete(m.keys, key)
	}
	return reply
}

// isEmpty reports whether nothing is left in the key, which is then removed with its expiry.
func (e *entry) isEmpty() bool {
	switch value := e.value.(type) {
	case hash:
		return len(value) == 0
	case list:
		return len(value) == 0
	case scores:
		return len(value) == 0
	}
	return e.value == nil
}

// talk serves one client.
func (m *model) talk(conn net.Conn) {
	defer conn.Close()
	for calls := redcon.NewReader(conn); ; {
		c, err := calls.ReadCommand()
		if err != nil {
			return
		}
		var words []string
		for _, word := range c.Args {
			words = append(words, string(word))
		}
		if _, err := conn.Write(redcon.AppendAny(nil, m.do(words))); err != nil {
			return
		}
	}
}

func integer(n int) redcon.SimpleInt { return redcon.SimpleInt(n) }

func count(yes bool) redcon.SimpleInt {
	if yes {
		return 1
	}
	return 0
}

// number reads a text that is known to be a number.
func number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func secondsOn(now int64, text string) int64 { return now + int64(number(text)*float64(time.Second)) }

func set(e *entry, now int64, words []string) any {
	expires := int64(0)
	for i, word := range words {
		switch strings.ToLower(word) {
		case "nx":
			if e.value != nil {
				return nil
			}
		case "ex":
			expires = secondsOn(now, words[i+1])
		}
	}
	e.value, e.expires = words[0], expires
	return redcon.SimpleString("OK")
}

func incrBy(e *entry, now int64, words []string) any {
	text, _ := e.value.(string)
	if text == "" {
		text = "0"
	}
	sum := int(number(text) + number(words[0]))
	e.value = strconv.Itoa(sum)
	return integer(sum)
}

func del(e *entry, now int64, words []string) any {
	gone := count(e.value != nil)
	*e = entry{}
	return gone
}

func exists(e *entry, now int64, words []string) any { return count(e.value != nil) }

func expire(e *entry, now int64, words []string) any {
	if e.value == nil {
		return count(false)
	}
	e.expires = secondsOn(now, words[0])
	return count(true)
}

func ttl(e *entry, now int64, words []string) any {
	switch {
	case e.value == nil:
		return integer(-2)
	case e.expires == 0:
		return integer(-1)
	}
	return integer(int((time.Duration(e.expires-now) + time.Second/2) / time.Second))
}

func hSet(e *entry, now int64, words []string) any {
	fields, _ := e.value.(hash)
	if fields == nil {
		fields = hash{}
	}
	before := len(fields)
	for i := 0; i < len(words); i += 2 {
		fields[words[i]] = words[i+1]
	}
	e.value = fields
	return integer(len(fields) - before)
}

func hGetAll(e *entry, now int64, words []string) any {
	fields, _ := e.value.(hash)
	return map[string]string(fields)
}

func hmGet(e *entry, now int64, words []string) any {
	fields, _ := e.value.(hash)
	values := make([]any, len(words))
	for i, name := range words {
		if value, there := fields[name]; there {
			values[i] = value
		}
	}
	return values
}

func lPush(e *entry, now int64, words []string) any {
	elements, _ := e.value.(list)
	for _, word := range words {
		elements = append(list{word}, elements...)
	}
	e.value = elements
	return integer(len(elements))
}

// rPop takes up to count elements; with a count the reply is a list.
func rPop(e *entry, now int64, words []string) any {
	elements, _ := e.value.(list)
	if len(elements) == 0 {
		return nil
	}
	if len(words) == 0 {
		e.value = elements[:len(elements)-1]
		return elements[len(elements)-1]
	}
	var taken []string
	for range min(len(elements), int(number(words[0]))) {
		taken = append(taken, elements[len(elements)-1])
		elements = elements[:len(elements)-1]
	}
	e.value = elements
	return taken
}

func lLen(e *entry, now int64, words []string) any {
	elements, _ := e.value.(list)
	return integer(len(elements))
}

// zAdd gives members scores: a member that exists keeps its place, with the new score.
func zAdd(e *entry, now int64, words []string) any {
	members, _ := e.value.(scores)
	if members == nil {
		members = scores{}
	}
	before := len(members)
	for i := 0; i < len(words); i += 2 {
		members[words[i+1]] = number(words[i])
	}
	e.value = members
	return integer(len(members) - before)
}

func zRemRangeByScore(e *entry, now int64, words []string) any {
	members, _ := e.value.(scores)
	removed := 0
	for name, score := range members {
		if number(words[0]) <= score && score <= number(words[1]) {
			delete(members, name)
			removed++
		}
	}
	return integer(removed)
}

func zCard(e *entry, now int64, words []string) any {
	members, _ := e.value.(scores)
	return integer(len(members))
}
