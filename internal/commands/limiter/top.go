package limiter

import (
	"cellserver/internal/command"
)

func (l *Family) topKeys() *command.Command {
	return &command.Command{
		Name: "cl.top", Group: "limiter", Since: "1.0.0",
		Complexity: "O(1): some thousand counters are read", Flags: command.ReadOnly,
		Cost:    command.Unbounded,
		Summary: "Lists the keys that were limited, or used, most often in the last minute.",
		Args:    []command.Arg{command.Word("[LIMITED | SEEN] [count]").Optional().Many()},
		Tips:    command.Varying,
		Reply: `For each key, in descending order: the key; how often it was limited, or seen; and the largest error of that count.
The default is LIMITED and 10; the maximum is 1000. Memory is bounded (Space-Saving, 2048 counters for each ten
seconds), so rare keys may be missing. Beyond some hundred calls a second, calls are sampled at random; then the error
bound holds with a probability of 99.9 %. Keys of more than 256 bytes are not counted.`,
		Run: func(c *command.Call) error {
			limited, count, err := topOptions(c.Many())
			if err != nil {
				return err
			}
			top := l.Top.List(c.Now(), c.View.Selected(), limited, count)
			c.Out.Array(len(top))
			for _, key := range top {
				c.Out.Array(3)
				c.Out.BulkString(key.Key)
				c.Out.Int(key.Count)
				c.Out.Int(key.Error)
			}
			return nil
		},
	}
}

// topOptions reads which keys CL.TOP lists, and how many.
func topOptions(words [][]byte) (limited bool, count int, err error) {
	limited, count = true, 10
	if len(words) > 0 && (command.FoldEqual(words[0], "LIMITED") || command.FoldEqual(words[0], "SEEN")) {
		limited, words = command.FoldEqual(words[0], "LIMITED"), words[1:]
	}
	switch len(words) {
	case 0:
		return limited, count, nil
	case 1:
		n, ok := command.ParseInteger(words[0], true)
		if !ok {
			return limited, count, &command.NumberError{Argument: "count"}
		}
		if n < 1 || n > 1000 {
			return limited, count, command.Refusal("ERR count must be between 1 and 1000")
		}
		return limited, int(n), nil
	}
	return limited, count, command.ErrSyntaxAt(words[1])
}
