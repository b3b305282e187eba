package cellserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// contract is ../contract/contract.json, which all clients obey.
type contract struct {
	Cases    []contractCase
	Errors   []struct{ Reply, Means string }
	Refusals struct {
		Limit contractCall
		Steps []refusalStep
	}
}

type contractCase struct {
	Name, Words, SettleWords, ReleaseWords string
	Call                                   contractCall
	Before                                 []string
	Reply, SettleReply                     []any
	Decision                               plainDecision
	Decisions                              []plainDecision
	Settled                                *plainDecision
	Fields                                 map[string]string
	Settle, Slack                          int64
	ID                                     *bool
	Anytime                                bool
}

type contractCall struct {
	Method, Key, Unit, Policy, Subject string
	Burst, Count, Limit, Quantity      int64
	Period, TTL                        float64
	Force                              bool
	Parts                              []contractCall
	Options                            struct {
		Peek, UpTo, Force bool
		Leave             int64
		Wait              float64
	}
}

// plainDecision has times in milliseconds.
type plainDecision struct {
	Allowed                                                    bool
	Limit, Remaining, RetryAfter, ResetAfter, Taken, Corrected int64
}

func plain(d Decision) plainDecision {
	p := plainDecision{d.Allowed, d.Limit, d.Remaining, d.RetryAfter.Milliseconds(), d.ResetAfter.Milliseconds(),
		d.Taken, d.Corrected}
	if d.RetryAfter == Never {
		p.RetryAfter = -1
	}
	return p
}

func readContract(t *testing.T) (c contract) {
	text, err := os.ReadFile(filepath.Join("..", "contract", "contract.json"))
	check(t, err)
	check(t, json.Unmarshal(text, &c))
	return c
}

func inSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (c *contractCall) limit() Limit {
	switch c.Method {
	case "throttle":
		return Throttle(c.Key, Rate{c.Burst, c.Count, inSeconds(c.Period)})
	case "fixed":
		return Fixed(c.Key, c.Limit, inSeconds(c.Period))
	case "sliding":
		return Sliding(c.Key, c.Limit, inSeconds(c.Period))
	case "slidinglog":
		return SlidingLog(c.Key, c.Limit, inSeconds(c.Period))
	case "quota":
		return Quota(c.Key, c.Limit, c.Unit)
	}
	return Policy(c.Policy, c.Subject)
}

func (c *contractCall) options() (o []Option) {
	if c.Options.Peek {
		o = append(o, Peek)
	}
	if c.Options.UpTo {
		o = append(o, UpTo)
	}
	if c.Options.Force {
		o = append(o, Force)
	}
	if c.Options.Leave > 0 {
		o = append(o, Leave(c.Options.Leave))
	}
	if c.Options.Wait > 0 {
		o = append(o, Wait(inSeconds(c.Options.Wait)))
	}
	return o
}

func TestContract(t *testing.T) {
	s := start(t)
	for _, retries := range []int{-1, 2} {
		limiter := New(client(t, patient(s, retries)), Options{Timeout: time.Minute})
		for _, c := range readContract(t).Cases {
			t.Run(fmt.Sprintf("%s, retries %d", c.Name, retries), func(t *testing.T) {
				raw(t, s, append([]string{"FLUSHALL"}, c.Before...)...)
				words := c.Words
				if retries > 0 && (c.ID == nil || *c.ID) {
					words += " ID *"
				}
				c.play(t, limiter, listen(t, s, "CL."), words)
			})
		}
	}
}

// play makes the call of a case, and compares its words, and what it returns.
func (c *contractCase) play(t *testing.T, limiter *Limiter, next func() []string, words string) {
	ctx := context.Background()
	switch c.Call.Method {
	case "all":
		var parts []Part
		for _, p := range c.Call.Parts {
			parts = append(parts, Part{p.limit(), p.Quantity, p.Force})
		}
		d, all, err := limiter.All(ctx, parts, c.Call.options()...)
		check(t, err)
		c.compare(t, d, c.Decision)
		for i, d := range all {
			c.compare(t, d, c.Decisions[i])
		}
	case "hold":
		h, d, err := limiter.Hold(ctx, c.Call.Policy, c.Call.Subject, c.Call.Quantity, inSeconds(c.Call.TTL))
		check(t, err)
		c.compare(t, d, c.Decision)
		compareWords(t, next(), words)
		d, err = h.Settle(ctx, c.Settle)
		check(t, err)
		c.compare(t, d, *c.Settled)
		words = c.SettleWords
	case "acquire":
		lease, d, err := limiter.Acquire(ctx, c.Call.Key, c.Call.Limit, inSeconds(c.Call.TTL))
		check(t, err)
		c.compare(t, d, c.Decision)
		if lease != nil {
			compareWords(t, next(), words)
			lease.Release()
			words = c.ReleaseWords
		}
	default:
		d, err := limiter.Do(ctx, c.Call.limit(), c.Call.Quantity, c.Call.options()...)
		check(t, err)
		c.compare(t, d, c.Decision)
	}
	compareWords(t, next(), words)
}

func compareWords(t *testing.T, got []string, want string) {
	t.Helper()
	pattern := strings.Fields(want)
	for i, w := range pattern {
		if w == "*" && i < len(got) && got[i] != "" {
			pattern[i] = got[i]
		}
	}
	if !reflect.DeepEqual(got, pattern) {
		t.Fatalf("sent %q, and not %s", got, want)
	}
}

// compare compares a decision of the real server, whose times may be up to a minute shorter than in want.
func (c *contractCase) compare(t *testing.T, got Decision, want plainDecision) {
	t.Helper()
	g := plain(got)
	for _, times := range [][2]*int64{{&g.RetryAfter, &want.RetryAfter}, {&g.ResetAfter, &want.ResetAfter}} {
		if *times[1] > 0 && (c.Anytime || *times[0] <= *times[1]+c.Slack && *times[0] > *times[1]-60_000) {
			*times[0] = *times[1]
		}
	}
	if g != want || got.Cause != nil {
		t.Fatalf("decided %+v, and not %+v: %v", g, want, got.Cause)
	}
}

func TestContractOfReplies(t *testing.T) {
	for _, c := range readContract(t).Cases {
		if c.Call.Method == "all" {
			continue
		}
		d, err := decisionOf(integers(c.Reply))
		check(t, err)
		if plain(d) != c.Decision {
			t.Errorf("%s: decided %+v, and not %+v", c.Name, plain(d), c.Decision)
		}
		if c.Fields == nil {
			continue
		}
		limit := c.Call.limit()
		o := outcome{name: c.Call.Key, by: limit.kind, limit: limit, d: d, header: http.Header{}}
		o.setFields()
		got := map[string]string{}
		for name, values := range o.answer().Header {
			got[name] = values[0]
		}
		if !reflect.DeepEqual(got, c.Fields) {
			t.Errorf("%s: the fields are %v, and not %v", c.Name, got, c.Fields)
		}
	}
}

func integers(reply []any) (values []any) {
	for _, v := range reply {
		values = append(values, int64(v.(float64)))
	}
	return values
}

func TestContractOfErrors(t *testing.T) {
	ctx := context.Background()
	for _, e := range readContract(t).Errors {
		addr := refuser(t, e.Reply)
		rdb := client(t, &redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: time.Minute})
		d, err := New(rdb, Options{Timeout: time.Minute}).Throttle(ctx, "k", Rate{1, 1, time.Minute}, 1)
		got := "mistake"
		if err == nil && d.Allowed && d.Cause != nil {
			got = "no answer"
		}
		if got != e.Means {
			t.Errorf("%s: it is a %s, and not a %s: %+v, %v", e.Reply, got, e.Means, d, err)
		}
		if err != nil && !strings.Contains(err.Error(), e.Reply) {
			t.Errorf("%s: the error is %v", e.Reply, err)
		}
	}
}

// refuser starts a server that answers a decision with the error reply, and any other call with another error.
func refuser(t *testing.T, reply string) (addr string) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go refuse(conn, reply)
		}
	}()
	return l.Addr().String()
}

func refuse(conn net.Conn, reply string) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var words, length int
		if _, err := fmt.Sscanf(lines.Text(), "*%d", &words); err != nil {
			return
		}
		answer := "ERR unknown command"
		for range words {
			lines.Scan()
			if _, err := fmt.Sscanf(lines.Text(), "$%d", &length); err != nil || !lines.Scan() {
				return
			}
			if strings.HasPrefix(lines.Text(), "CL.") {
				answer = reply
			}
		}
		if _, err := fmt.Fprintf(conn, "-%s\r\n", answer); err != nil {
			return
		}
	}
}

type refusalStep struct {
	contractCall
	At       int64
	Reply    []any
	Decision plainDecision
}

func TestContractOfRefusals(t *testing.T) {
	c := readContract(t).Refusals
	r := &refusals{byCall: map[string]refusal{}}
	for i, s := range c.Steps {
		now := time.UnixMilli(s.At)
		made := newCall(c.Limit.limit(), s.Quantity, s.options())
		d, found := r.find(made, now)
		if found != (s.Reply == nil) || found && (plain(d) != s.Decision || !d.Remembered) {
			t.Fatalf("step %d: %+v, %v", i, d, found)
		}
		if !found {
			d, err := decisionOf(integers(s.Reply))
			check(t, err)
			r.note(made, d, now)
		}
	}
	for i := range mostRefusals + 100 {
		made := newCall(Fixed(strconv.Itoa(i), 1, time.Hour), 1, nil)
		r.note(made, Decision{RetryAfter: time.Hour}, time.UnixMilli(3000))
	}
	if len(r.byCall) > mostRefusals {
		t.Errorf("%d are remembered", len(r.byCall))
	}
	r.note(newCall(Fixed("late", 1, time.Hour), 1, nil), Decision{RetryAfter: time.Hour}, time.UnixMilli(5000))
	if len(r.byCall) != 1 {
		t.Errorf("what is over is remembered: %d", len(r.byCall))
	}
}

// TestRemember: after a refusal, the same call is not sent again, and a call with another limit is sent.
func TestRemember(t *testing.T) {
	s := start(t)
	limiter := New(client(t, patient(s, 2)), Options{Timeout: time.Minute, Remember: true})
	next := listen(t, s, "CL.")
	for _, want := range []Decision{{Allowed: true}, {}, {Remembered: true}} {
		d, err := limiter.Do(t.Context(), Fixed("k", 1, time.Hour), 1)
		check(t, err)
		if d.Allowed != want.Allowed || d.Remembered != want.Remembered {
			t.Errorf("%+v, and not %+v", d, want)
		}
	}
	d, err := limiter.Do(t.Context(), Fixed("k", 2, time.Hour), 1)
	check(t, err)
	if !d.Allowed {
		t.Errorf("a larger limit: %+v", d)
	}
	for _, size := range []string{"1", "1", "2"} {
		if words := next(); words[2] != size {
			t.Errorf("sent %v", words)
		}
	}
}
