package commands

import (
	"cellserver/internal/resp"
)

func (l *Limiters) topKeys() *Command {
	return &Command{
		Name: "cl.top", Group: "limiter", Since: "1.0.0", Complexity: "O(1): some thousand counters are looked at", Flags: ReadOnly, Cost: Unbounded,
		Summary: "Shows the keys that limiters refused, or were asked about, most often in the last minute.",
		Args:    []Arg{Word("[LIMITED | SEEN] [count]").Optional().Many()}, Tips: varying,
		Reply: `For each key, most first: the key; how often it was limited, or seen; and how far that may be off. LIMITED and 10 if nothing
else is said, 1000 at most. Memory is bounded (Space-Saving, 2048 counters for each ten seconds), so rare keys may be missing. Beyond
some hundred calls a second one call in several stands for all, chosen at random: then how far a count may be off holds with 99.9 %.
Keys of more than 256 bytes are not counted.`,
		Run: func(c *Call) error {
			limited, count, err := topOptions(c.Many())
			if err != nil {
				return err
			}
			top := l.Top.List(c.View.Now(), c.View.Selected(), limited, count)
			c.Out.Array(len(top))
			for _, hitter := range top {
				c.Out.Array(3)
				c.Out.BulkString(hitter.Key)
				c.Out.Int(hitter.Count)
				c.Out.Int(hitter.Error)
			}
			return nil
		},
	}
}

func topOptions(words [][]byte) (limited bool, count int, err error) {
	limited, count = true, 10
	if len(words) > 0 && (foldEqual(words[0], "LIMITED") || foldEqual(words[0], "SEEN")) {
		limited, words = foldEqual(words[0], "LIMITED"), words[1:]
	}
	switch len(words) {
	case 0:
		return limited, count, nil
	case 1:
		n, ok := resp.ParseInt(words[0])
		if !ok {
			return limited, count, errNotAnInteger
		}
		if n < 1 || n > 1000 {
			return limited, count, refusal("ERR count must be between 1 and 1000")
		}
		return limited, int(n), nil
	}
	return limited, count, errSyntax
}

// seen says that a limiter has decided about a key. It is on the way of every call, so it does next to nothing.
func (l *Limiters) seen(c *Call, key []byte, limited bool) {
	if !c.sampling.Pass() {
		l.sample(c, key, limited)
	}
}

func (l *Limiters) sample(c *Call, key []byte, limited bool) {
	l.Top.Count(&c.sampling, c.View.Now(), c.View.Selected(), key, limited, uint64(c.View.Signed()))
}
