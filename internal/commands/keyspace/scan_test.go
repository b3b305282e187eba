package keyspace

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
)

// When its client disconnects, a search stops at the next key.
func TestSearchStopsWithItsClient(t *testing.T) {
	data := memory.New(memory.Options{Clock: store.NewClock()})
	for i := range 3 {
		require.NoError(t, data.View().Write(context.Background(), fmt.Appendf(nil, "key:%d", i), store.Value{}, store.Never))
	}
	gone, leave := context.WithCancel(context.Background())
	call := &command.Call{Context: gone, View: data.View()}
	search := search{match: filter{pattern: []byte("k*")}}
	for more := true; more; more = search.cursor != 0 {
		require.NoError(t, search.next(call, keysPerPiece))
	}
	require.Len(t, search.found[0].ends, 3)
	leave()
	err := error(nil)
	for more := true; more && err == nil; more = search.cursor != 0 {
		err = search.next(call, keysPerPiece)
	}
	require.ErrorIs(t, err, command.ErrStopped)
}
