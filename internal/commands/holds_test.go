package commands_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands/commandstest"
)

// What a SETTLE that is sent again says was given back already.
func TestRepeatedSettlementsGiveBackOnce(t *testing.T) {
	c := commandstest.New(t).Connect()
	require.Equal(t, integers(0, 10000, 7000, -1, 60), c.Do(t, "CL.FIXED k 10000 60 3000 HOLD a 10m"))
	for range 3 {
		require.Equal(t, integers(0, 10000, 8800, -1, 60, -1800), c.Do(t, "CL.FIXED k 10000 60 1200 SETTLE a"))
	}
	require.Contains(t, c.Do(t, "INFO cell"), "cell_holds_given_back:1800\r\n")
}
