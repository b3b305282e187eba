package persist

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"cellserver/internal/store"
)

// state is the content of a toyStore.
type state map[string]string

// toyStore is a Store of strings. Its passes and snapshots have an entry "key=value" for each key,
// or "key-" for a removed key. Keys and values contain no line breaks, "=" or "-".
type toyStore struct {
	store.Store // nil
	clock       *store.StillClock

	mu       sync.Mutex
	keys     state
	changed  map[string]bool
	tracking bool
	history  []state     // the states at the end of each pass
	failing  error       // the error of the next pass
	during   func(n int) // called by Snapshot before its n-th chunk
}

func newToyStore(clock *store.StillClock) *toyStore {
	return &toyStore{clock: clock, keys: state{}, changed: map[string]bool{}, during: func(int) {}}
}

func (s *toyStore) Clock() store.Clock { return s.clock }

func (s *toyStore) Databases() int { return 1 }

func (s *toyStore) TrackChanges() { s.tracking = true }

// set gives several keys one value, or removes them, in one step.
func (s *toyStore) set(value string, keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if s.keys[key] = value; value == "" {
			delete(s.keys, key)
		}
		if s.tracking {
			s.changed[key] = true
		}
	}
}

func toyEntry(key, value string) string {
	if value == "" {
		return key + "-\n"
	}
	return key + "=" + value + "\n"
}

var errTooLarge = errors.New("the pass is too large")

// Pass writes chunks of three entries.
func (s *toyStore) Pass(write func([]byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Sorted(maps.Keys(s.changed))
	clear(s.changed)
	s.history = append(s.history, maps.Clone(s.keys))
	if err := s.failing; err != nil {
		s.failing = nil
		return err
	}
	for chunk := range slices.Chunk(keys, 3) {
		text := ""
		for _, key := range chunk {
			text += toyEntry(key, s.keys[key])
		}
		if err := write([]byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// Snapshot writes chunks of two keys. It calls during before each chunk.
func (s *toyStore) Snapshot(write func([]byte) error) error {
	s.mu.Lock()
	keys := slices.Sorted(maps.Keys(s.keys))
	s.mu.Unlock()
	n := 0
	for chunk := range slices.Chunk(keys, 2) {
		s.during(n)
		n++
		text := ""
		s.mu.Lock()
		for _, key := range chunk {
			if value := s.keys[key]; value != "" {
				text += toyEntry(key, value)
			}
		}
		s.mu.Unlock()
		if err := write([]byte(text)); err != nil {
			return err
		}
	}
	s.during(n)
	return nil
}

// toyLoader loads a toyStore.
type toyLoader struct {
	s    *toyStore
	done bool
}

func (l *toyLoader) Apply(entries []byte) error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	for line := range strings.Lines(string(bytes.Clone(entries))) {
		line = strings.TrimSuffix(line, "\n")
		if key, value, found := strings.Cut(line, "="); found {
			l.s.keys[key] = value
		} else if key, found := strings.CutSuffix(line, "-"); found {
			delete(l.s.keys, key)
		} else {
			return fmt.Errorf("%q is not an entry", line)
		}
	}
	return nil
}

func (l *toyLoader) Done() error {
	l.done = true
	return nil
}

// toyMachine is a machine with clocks that advance by a microsecond at each reading.
type toyMachine struct {
	mu   sync.Mutex
	next store.Reading
}

func (m *toyMachine) Read() store.Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next.Uptime += int64(time.Microsecond)
	m.next.Wall += int64(time.Microsecond)
	return m.next
}

func (m *toyMachine) advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next.Uptime += int64(d)
	m.next.Wall += int64(d)
}

// newToyVerifier returns a loader for Check.
func newToyVerifier() Loader { return &toyLoader{s: newToyStore(nil)} }
