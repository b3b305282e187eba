package combine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An unknown key is not read first if a step says that the key hardly ever exists. If it does exist, the write finds
// out.
func TestAbsentKeysAreNotRead(t *testing.T) {
	d := newDesk(t)
	d.keys["there"] = "5"
	first := d.add("first", 1, "new")
	first.Absent = 1
	d.submit(first)
	require.Equal(t, []string{"write new ->1"}, d.sent())
	d.reply(d.execute)
	second := d.add("second", 1, "new", "there")
	second.Absent = 1
	d.submit(second)
	require.Equal(t, []string{"write new 1>2 there ->1"}, d.sent())
	d.reply(d.execute)
	require.Equal(t, []string{"write new 1>2 there 5>6 +look there"}, d.sent())
	d.reply(d.execute)
	third := d.add("third", 1, "unknown", "other")
	third.Absent = 1
	d.submit(third)
	require.Equal(t, []string{"read unknown other"}, d.sent(), "the other key has to be read")
	d.reply(d.execute)
	d.reply(d.execute)
	nothing := d.add("nothing", 0, "nowhere")
	nothing.Absent = 1
	d.submit(nothing)
	require.Equal(t, []string{"read nowhere"}, d.sent(), "what changes nothing is not judged by a guess")
	d.reply(d.execute)
	require.Equal(t, []string{"first", "second", "third", "nothing"}, d.ended)
	require.Equal(t, "6", d.keys["there"])
}
