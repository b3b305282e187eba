package limiter

import (
	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/store"
)

func (l *Family) holds() *command.Command {
	return &command.Command{
		Name: "cl.holds", Group: "limiter", Since: "1.0.0",
		Complexity: "O(N*log(N)) in the number of open holds, which is at most 1000",
		Flags:      command.ReadOnly, Cost: command.Unbounded, Traits: command.ValueSized | command.NamesArguments,
		Summary:   "Lists the open holds of a limiter: charges that may still be corrected.",
		KeyAccess: "RO ACCESS",
		Args:      []command.Arg{command.Key("key"), command.Int("n").Min(1).Or(store.MaxHoldsPerKey).After("COUNT")},
		Reply: `For each hold its id, the quantity that it has charged, and the milliseconds until it lapses; the hold that
lapses first comes first.`,
		Run: func(c *command.Call) error {
			key, count := c.Key(), min(c.Int(), store.MaxHoldsPerKey)
			keeper, ok := c.View.(store.HoldKeeper)
			if !ok {
				return decide.ErrNoHolds
			}
			holds, err := keeper.Holds(c.Context, key, int(count))
			if err != nil {
				return err
			}
			c.Out.Array(len(holds))
			for _, h := range holds {
				c.Out.Array(3)
				c.Out.BulkString(h.ID)
				c.Out.Int(h.Quantity)
				c.Out.Int(command.RoundUp(h.Ends-c.View.Now(), 1e6))
				c.Out.Break()
			}
			return nil
		},
	}
}
