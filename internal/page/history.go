package page

import "context"

// past is the answer to POST /history: the numbers of decisions in each point, the oldest first. It is not in the
// messages of the stream, because it is several times as long as a message.
type past struct {
	Step    int64   `json:"step"` // seconds of a point
	End     int64   `json:"end"`  // Unix milliseconds, of the last point
	Allowed []int64 `json:"allowed"`
	Limited []int64 `json:"limited"`
	Shadow  []int64 `json:"shadow"`
	Banned  []int64 `json:"banned"`
	Error   []int64 `json:"error"`
}

// history shows what a policy has decided before. The line has the words of a CL.HISTORY, without its name.
func history(ctx context.Context, c *caller, line string) (any, error) {
	words, err := splitCall(line)
	if err != nil {
		return nil, err
	}
	r, err := c.ask(ctx, append([]string{"CL.HISTORY"}, words...)...)
	if err != nil {
		return nil, err
	}
	found := new(past)
	lists := map[string]*[]int64{"allowed": &found.Allowed, "limited": &found.Limited, "shadow": &found.Shadow,
		"banned": &found.Banned, "error": &found.Error}
	r.pairs(func(name string, value reply) {
		switch list := lists[name]; {
		case name == "step":
			found.Step = value.number()
		case name == "end_ms":
			found.End = value.number()
		case list != nil:
			*list = make([]int64, len(value.parts))
			for i := range value.parts {
				(*list)[i] = value.parts[i].number()
			}
		}
	})
	return found, nil
}
