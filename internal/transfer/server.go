package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"cellserver/internal/cli"
	"cellserver/internal/rdb"
	"cellserver/internal/resp"
)

// A batch of calls is sent at once. It has up to batchKeys calls, and about batchBytes bytes.
const (
	batchKeys  = 500
	batchBytes = 1 << 20
)

var background = context.Background()

// exec sends a batch and reads its replies. Error replies are in the calls, and are not errors of
// exec.
func exec(conn *cli.Connection, batch redis.Pipeliner) error {
	_, err := batch.Exec(background)
	var refusal redis.Error
	if err == nil || errors.As(err, &refusal) {
		return nil
	}
	return conn.Describe(err)
}

// serverSource reads the keys of a running server with SCAN and DUMP: the keys are of different instants.
type serverSource struct {
	conn         *cli.Connection
	database     int // -1 for all
	match        pattern
	size         int64
	read         atomic.Int64
	noExpireTime bool // the server has no PEXPIRETIME: it is older than Redis 7.0
}

// openServer connects to a server.
func openServer(s *cli.Server, database int, match pattern) (*serverSource, error) {
	conn, err := s.Connect()
	if err != nil {
		return nil, err
	}
	source := &serverSource{conn: conn, database: database, match: match}
	if err := conn.Do(background, "PEXPIRETIME", "").Err(); err != nil {
		source.noExpireTime = true
	}
	return source, nil
}

func (s *serverSource) close() { s.conn.Close() }

// libraries asks for the libraries of functions. A server that has none may not know the command.
func (s *serverSource) libraries() int {
	all, _ := s.conn.Do(background, "FUNCTION", "LIST").Slice()
	return len(all)
}

// holdsLeft asks for the number of open holds, which DUMP does not return.
func (s *serverSource) holdsLeft() (n int64) {
	text, _ := s.conn.Do(background, "INFO", "cell").Text()
	for line := range strings.Lines(text) {
		if _, err := fmt.Sscanf(line, "cell_holds:%d", &n); err == nil {
			break
		}
	}
	return n
}

func (s *serverSource) progress() float64 {
	return min(float64(s.read.Load())/float64(max(s.size, 1)), 1)
}

// databases returns the numbers of the databases that have keys, in ascending order. If the URL names
// a database, it returns only that one.
func (s *serverSource) databases() (numbers []int, err error) {
	// A server that is still loading its keys answers INFO, which then shows only some of them. It
	// does not answer SCAN.
	if err := s.conn.Scan(background, 0, "", 1).Err(); err != nil {
		return nil, s.conn.Describe(err)
	}
	if s.database >= 0 {
		numbers = []int{s.database} // also if the database is empty, so that a missing database is an error
	}
	text, err := s.conn.Do(background, "INFO", "keyspace").Text()
	if err != nil {
		return nil, s.conn.Describe(err)
	}
	for line := range strings.Lines(text) {
		var n int
		var keys int64
		_, err := fmt.Sscanf(line, "db%d:keys=%d,", &n, &keys)
		if err != nil || s.database >= 0 && s.database != n {
			continue
		}
		s.size += keys
		if s.database < 0 {
			numbers = append(numbers, n)
		}
	}
	if numbers == nil {
		numbers = s.allDatabases()
	}
	return numbers, nil
}

// allDatabases returns the numbers of the databases that can be selected. A cellserver whose keys are
// in a store does not know how many keys each database has, and its INFO looks like an empty
// server's.
func (s *serverSource) allDatabases() (numbers []int) {
	const most = 1024 // the maximum of --databases
	for n := range most {
		if s.conn.Do(background, "SELECT", n).Err() != nil {
			break
		}
		numbers = append(numbers, n)
	}
	return numbers
}

func (s *serverSource) each(visit func(rec *rdb.Record) error) error {
	numbers, err := s.databases()
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if err := s.scan(n, visit); err != nil {
			return err
		}
	}
	return nil
}

func (s *serverSource) scan(database int, visit func(rec *rdb.Record) error) error {
	if err := s.conn.Do(background, "SELECT", database).Err(); err != nil {
		return s.conn.Describe(err)
	}
	for cursor := uint64(0); ; {
		keys, next, err := s.conn.Scan(background, cursor, "", batchKeys).Result()
		if err != nil {
			return s.conn.Describe(err)
		}
		s.read.Add(int64(len(keys)))
		keys = slices.DeleteFunc(keys, func(key string) bool { return !s.match.has([]byte(key)) })
		if err := s.fetch(database, keys, visit); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// fetch reads keys that a scan has found. It reads their types first, so that the server does not
// send large values of types that cannot be imported.
func (s *serverSource) fetch(database int, keys []string, visit func(rec *rdb.Record) error) error {
	batch := s.conn.Pipeline()
	types := make([]*redis.StatusCmd, len(keys))
	for i, key := range keys {
		types[i] = batch.Type(background, key)
	}
	if err := exec(s.conn, batch); err != nil {
		return err
	}
	batch = s.conn.Pipeline()
	now := batch.Time(background)
	payloads, expiries := make([]*redis.StringCmd, len(keys)), make([]*redis.Cmd, len(keys))
	for i, key := range keys {
		if isKept(types[i].Val()) {
			payloads[i], expiries[i] = batch.Dump(background, key), s.askExpiry(batch, key)
		}
	}
	if err := exec(s.conn, batch); err != nil {
		return err
	}
	for i, key := range keys {
		rec, ok, err := s.record(key, types[i], payloads[i], expiries[i], now.Val())
		if err != nil {
			return fmt.Errorf("key %.100q: %w", key, err)
		}
		if rec.Database = database; !ok {
			continue
		}
		if err := visit(&rec); err != nil {
			return err
		}
	}
	return nil
}

// isKept reports whether keys of a type can be imported: strings, and the limiters of cellserver.
func isKept(kind string) bool { return kind == "string" || strings.HasPrefix(kind, "cl.") }

// askExpiry adds the call that returns the expiry of a key to the batch.
func (s *serverSource) askExpiry(batch redis.Pipeliner, key string) *redis.Cmd {
	if s.noExpireTime {
		return batch.Do(background, "PTTL", key)
	}
	return batch.Do(background, "PEXPIRETIME", key)
}

// record makes a record of the replies for a key; ok is false if the key no longer exists.
func (s *serverSource) record(
	key string, kind *redis.StatusCmd, payload *redis.StringCmd, expiry *redis.Cmd, now time.Time,
) (rec rdb.Record, ok bool, err error) {
	switch {
	case kind.Err() != nil:
		return rec, false, kind.Err()
	case kind.Val() == "none":
		return rec, false, nil
	case payload == nil:
		rec = rdb.Record{Key: []byte(key), Type: typeByName(kind.Val()), Module: kind.Val()}
		return rec, true, nil
	case errors.Is(payload.Err(), redis.Nil):
		return rec, false, nil
	case payload.Err() != nil:
		return rec, false, payload.Err()
	}
	bytes, _ := payload.Bytes()
	if rec, err = rdb.ReadDump(bytes); err != nil {
		return rec, false, err
	}
	rec.Key = []byte(key)
	expires, err := expiry.Int64()
	switch {
	case err != nil:
		return rec, false, err
	case expires < 0: // it does not expire
		rec.Expires = rdb.Never
	case s.noExpireTime:
		rec.Expires = now.UnixMilli() + expires
	default:
		rec.Expires = expires
	}
	return rec, true, nil
}

// typeByName returns the type for a name that TYPE returns. All unknown names belong to modules.
func typeByName(name string) rdb.Type {
	for _, t := range []rdb.Type{rdb.List, rdb.Set, rdb.SortedSet, rdb.Hash, rdb.Stream} {
		if t.String() == name {
			return t
		}
	}
	return rdb.Module
}

// serverDestination writes keys to a running server, by RESTORE.
type serverDestination struct {
	conn            *cli.Connection
	report          *report
	replace         bool
	maxBulk         int    // bytes in an argument
	selected        int    // the selected database; -1 if it is unknown
	missingDatabase int    // the last database that the server has refused
	missingReason   string // why it has; "" if it has refused no database
	batch           redis.Pipeliner
	calls           []restoreCall
	bytes           int
}

// restoreCall is a call of the batch.
type restoreCall struct {
	key     string
	payload string
	limiter bool
	reply   *redis.Cmd
}

// connectDestination connects to a server. now is the server's time, in Unix milliseconds.
func connectDestination(s *cli.Server, r *report, replace bool) (d *serverDestination, now int64, err error) {
	conn, err := s.Connect()
	if err != nil {
		return nil, 0, err
	}
	at, err := conn.Time(background).Result()
	if err != nil {
		conn.Close()
		return nil, 0, conn.Describe(err)
	}
	return &serverDestination{conn: conn, report: r, replace: replace, maxBulk: maxBulk(conn), selected: -1,
		batch: conn.Pipeline()}, at.UnixMilli(), nil
}

// maxBulk returns how many bytes an argument of a call may have: a server closes the connection after a
// longer argument. If the user may not ask for the bound, maxBulk returns the default.
func maxBulk(conn *cli.Connection) int {
	const name = "proto-max-bulk-len"
	values, _ := conn.ConfigGet(background, name).Result()
	if n, err := strconv.Atoi(values[name]); err == nil {
		return n
	}
	return resp.DefaultLimits().Bulk
}

func (d *serverDestination) put(it *item) error {
	if it.holds != nil {
		d.report.leaveHolds(it)
		return nil
	}
	payload := string(it.payload())
	if max(len(it.key), len(payload)) > d.maxBulk {
		d.report.refuse(fmt.Sprintf("longer than the server's proto-max-bulk-len of %d bytes", d.maxBulk), it.key)
		return nil
	}
	if it.database != d.selected {
		if ok, err := d.selectDatabase(it); !ok {
			return err
		}
	}
	expires := it.expires // the expiry of a limiter too: cellserver does not need it, but a redis-server does
	if expires == rdb.Never {
		expires = 0
	}
	words := []any{"RESTORE", string(it.key), strconv.FormatInt(expires, 10), payload, "ABSTTL"}
	if d.replace {
		words = append(words, "REPLACE")
	}
	d.calls = append(d.calls, restoreCall{string(it.key), payload, it.state != nil, d.batch.Do(background, words...)})
	if d.bytes += len(it.key) + len(payload); len(d.calls) < batchKeys && d.bytes < batchBytes {
		return nil
	}
	return d.flush()
}

// selectDatabase selects the database of an item. If the server does not have it, ok is false.
func (d *serverDestination) selectDatabase(it *item) (ok bool, err error) {
	if d.missingReason != "" && it.database == d.missingDatabase {
		d.report.refuse(d.missingReason, it.key)
		return false, nil
	}
	if err := d.flush(); err != nil {
		return false, err
	}
	err = d.conn.Do(background, "SELECT", it.database).Err()
	var refusal redis.Error
	switch {
	case errors.As(err, &refusal):
		d.missingDatabase, d.missingReason = it.database, fmt.Sprintf("of database %d (%s)", it.database, refusal)
		d.report.refuse(d.missingReason, it.key)
		return false, nil
	case err != nil:
		return false, d.conn.Describe(err)
	}
	d.selected = it.database
	return true, nil
}

// fatalPrefixes are the prefixes of errors that all later calls would return too.
var fatalPrefixes = []string{
	"OOM ", "LOADING ", "MISCONF ", "NOAUTH ", "READONLY ", "CLUSTERDOWN ", "MOVED ", "ERR unknown command",
}

// flush sends the batch.
func (d *serverDestination) flush() error {
	if len(d.calls) == 0 {
		return nil
	}
	if err := exec(d.conn, d.batch); err != nil {
		return err
	}
	var busy []restoreCall
	for _, call := range d.calls {
		switch err := call.reply.Err(); {
		case err == nil:
			d.report.written(call.limiter)
		case strings.HasPrefix(err.Error(), "BUSYKEY "):
			busy = append(busy, call)
		case hasAnyPrefix(err.Error(), fatalPrefixes):
			return fmt.Errorf("%s refuses: %s", d.conn.Address(), err)
		default:
			d.report.refuse(err.Error(), []byte(call.key))
		}
	}
	d.calls, d.bytes, d.batch = d.calls[:0], 0, d.conn.Pipeline()
	return d.compare(busy)
}

func hasAnyPrefix(text string, beginnings []string) bool {
	for _, beginning := range beginnings {
		if strings.HasPrefix(text, beginning) {
			return true
		}
	}
	return false
}

// compare counts keys that the server already has. If the content is the same, an earlier import
// has written the key, or a redis-server's SCAN has returned it twice.
func (d *serverDestination) compare(busy []restoreCall) error {
	if len(busy) == 0 {
		return nil
	}
	payloads := make([]*redis.StringCmd, len(busy))
	for i, call := range busy {
		payloads[i] = d.batch.Dump(background, call.key)
	}
	if err := exec(d.conn, d.batch); err != nil {
		return err
	}
	d.batch = d.conn.Pipeline()
	for i, call := range busy {
		if payloads[i].Val() == call.payload {
			d.report.count(&d.report.unchanged)
		} else {
			d.report.refuse("which exist already (--replace replaces them)", []byte(call.key))
		}
	}
	return nil
}

func (d *serverDestination) close() error {
	defer d.conn.Close()
	return d.flush()
}
