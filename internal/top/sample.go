package top

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"cellserver/internal/cli"
)

// sample is what a server says at one instant.
type sample struct {
	at            time.Duration     // on the server's clock
	info          map[string]string // the fields of INFO
	limited, seen topKeys
	policies      policyList
}

// topKeys is a reply to CL.TOP. A user without the right to call it sees the error instead.
type topKeys struct {
	keys []topKey
	more int // keys for which the terminal has no room
	err  error
}

type topKey struct {
	name  string
	count int64
}

// sampler takes samples over one connection, which it opens again after an error. One goroutine uses it.
type sampler struct {
	server *cli.Server
	keys   int // of each list of CL.TOP
	conn   *cli.Connection
	last   string // the address of the last connection, "" before the first

	policies policyList
	asked    int // samples since the policies were read
}

func (s *sampler) close() {
	if s.conn != nil {
		_ = s.conn.Close() // nothing is sent any more
		s.conn = nil
	}
}

// take takes a sample.
func (s *sampler) take() (*sample, error) {
	if s.conn == nil {
		conn, err := s.server.Connect()
		if err != nil {
			return nil, err
		}
		s.conn, s.last = conn, conn.Address()
	}
	r, err := s.ask()
	if err != nil {
		err = describe(s.conn, err)
		s.close()
	}
	return r, err
}

// describe returns the error to be shown. An error reply about one command does not say what the next ones need.
func describe(conn *cli.Connection, err error) error {
	var refusal redis.Error
	switch {
	case !errors.As(err, &refusal):
		return conn.Describe(err)
	case isDenied(err):
		return fmt.Errorf("%s: %w. cellserver top needs %s", conn.Address(), err, rights)
	case strings.HasPrefix(err.Error(), "NOAUTH "):
		return fmt.Errorf("%s: %s. -a gives a password, --user the name of its user", conn.Address(),
			strings.TrimSuffix(err.Error(), "."))
	}
	return fmt.Errorf("%s: %w", conn.Address(), err)
}

func (s *sampler) ask() (*sample, error) {
	ctx := context.Background()
	now, err := s.conn.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	info, err := s.conn.Info(ctx, "everything").Result()
	if err != nil {
		return nil, err
	}
	r := &sample{at: time.Duration(now.UnixNano()), info: parseInfo(info)}
	if r.limited, err = s.top(ctx, "LIMITED"); err != nil {
		return nil, err
	}
	if r.seen, err = s.top(ctx, "SEEN"); err != nil {
		return nil, err
	}
	r.policies, err = s.policiesOf(ctx, r)
	return r, err
}

// top returns the reply to CL.TOP. Its error is the connection's.
func (s *sampler) top(ctx context.Context, list string) (topKeys, error) {
	reply, err := s.conn.Do(ctx, "CL.TOP", list, s.keys).Slice()
	var refusal redis.Error
	if errors.As(err, &refusal) {
		return topKeys{err: err}, nil
	}
	return topKeys{keys: parseTop(reply)}, err
}

// parseTop parses the entries of CL.TOP: a key, its count, and the error of the count.
func parseTop(reply []any) (keys []topKey) {
	for _, element := range reply {
		entry, _ := element.([]any)
		if len(entry) < 2 {
			continue
		}
		name, isText := entry[0].(string)
		count, isNumber := entry[1].(int64)
		if isText && isNumber {
			keys = append(keys, topKey{name, count})
		}
	}
	return keys
}

func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			fields[name] = value
		}
	}
	return fields
}

// number returns a field of INFO, 0 if there is none.
func (s *sample) number(field string) float64 { return parseNumber(s.info[field]) }

// part returns a part of a field, as calls of calls=1,usec=2.
func (s *sample) part(field, name string) (value string, found bool) {
	for pair := range strings.SplitSeq(s.info[field], ",") {
		if value, found := strings.CutPrefix(pair, name+"="); found {
			return value, true
		}
	}
	return "", false
}

// partNumber returns a part of a field, 0 if there is none.
func (s *sample) partNumber(field, name string) float64 {
	value, _ := s.part(field, name)
	return parseNumber(value)
}

// keysInAll returns the number of keys in all databases.
func (s *sample) keysInAll() (n float64) {
	for field := range s.info {
		if number, found := strings.CutPrefix(field, "db"); found {
			if _, err := strconv.Atoi(number); err == nil {
				n += s.partNumber(field, "keys")
			}
		}
	}
	return n
}

// parseNumber returns 0 for a text that is no number.
func parseNumber(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return n
}
