//go:build !race

package replay

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A million subjects need at most 300 bytes each, beside the memory of the store, even if each is limited.
func TestMemoryOfSubjects(t *testing.T) {
	const subjects = 100_000
	var text strings.Builder
	for i := range subjects {
		text.WriteString(strings.Repeat(at(fmt.Sprintf("10.%d.%d.%d", 100+i>>16, i>>8&255, i&255), i/100, 200), 2))
	}
	var out, stderr strings.Builder
	e := testEnvironment(&out, &stderr)
	o := &options{maxLog: 1000, clients: "give-up", table: true}
	require.NoError(t, o.complete([]string{write(t, "p.yaml", judged), write(t, "access.log", text.String())},
		withPolicy(o, "one", &e)))
	o.reading.Quantity = "{status}"
	text.Reset()
	log, err := o.openLog(&e)
	require.NoError(t, err)
	defer log.Close()
	before := inUse()
	r := &replay{o: o, e: &e, log: log}
	_, err = r.read()
	require.NoError(t, err)
	require.EqualValues(t, subjects, r.tally.subjects.count)
	require.EqualValues(t, 2*subjects, r.tally.limited)
	r.judge, r.stores = nil, nil
	used := (inUse() - before) / subjects
	require.Less(t, used, int64(300))
	require.Greater(t, used, int64(100), "they are counted")
	runtime.KeepAlive(r)
}

// inUse returns how many bytes are in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // objects with a finalizer are freed only now
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
