package leaktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// A goroutine that ends late is no leak; one that does not end is found.
func TestFind(t *testing.T) {
	before, end := goleak.IgnoreCurrent(), make(chan struct{})
	go func() { <-end }()
	require.Error(t, find(2, before))
	time.AfterFunc(time.Millisecond, func() { close(end) })
	require.NoError(t, Find(before))
}
