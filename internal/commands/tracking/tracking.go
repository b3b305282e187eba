package tracking

import (
	"fmt"
	"slices"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// Commands returns the rows of the family, which are subcommands of CLIENT.
func (t *Table) Commands() []*command.Command {
	return []*command.Command{t.trackingRow(), t.cachingRow(), t.trackingInfoRow(), t.getRedirRow()}
}

const trackingFlags = command.NoScript | command.Loading | command.Stale

func (t *Table) trackingRow() *command.Command {
	return &command.Command{
		Name: "client|tracking", Group: "connection", Since: "6.0.0",
		Complexity: "O(N) in the number of prefixes", Flags: trackingFlags,
		Traits:  command.Needs(store.Notifies),
		Summary: "Starts or stops client-side caching: the client gets a message when a key changes that it has read.",
		Args: []command.Arg{command.Word("ON|OFF"),
			command.Word("[REDIRECT client-id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]").Optional().Many()},
		Reply: "OK. A change is sent as a RESP3 push: invalidate, and the keys, or nil for all keys; with REDIRECT, to another client.",
		Run: func(c *command.Call) error {
			status := c.Word()
			wanted, err := t.options(c, c.Many())
			if err != nil {
				return err
			}
			switch {
			case command.FoldEqual(status, "ON"):
				if err := checkOptions(wanted, c.Client.Tracker.Load()); err != nil {
					return err
				}
				t.setCallTracker(c, wanted)
			case command.FoldEqual(status, "OFF"):
				t.setCallTracker(c, nil)
			default:
				return command.ErrSyntax
			}
			c.Out.Status("OK")
			return nil
		},
	}
}

// options reads the options of CLIENT TRACKING.
func (t *Table) options(c *command.Call, words [][]byte) (*client.Tracker, error) {
	wanted := new(client.Tracker)
	for ; len(words) > 0; words = words[1:] {
		switch word := words[0]; {
		case command.FoldEqual(word, "REDIRECT") && len(words) > 1:
			words = words[1:]
			if err := t.redirect(wanted, words[0]); err != nil {
				return nil, err
			}
		case command.FoldEqual(word, "PREFIX") && len(words) > 1:
			words = words[1:]
			if err := c.CheckKey(words[0]); err != nil {
				return nil, err
			}
			wanted.Prefixes = append(wanted.Prefixes, string(words[0]))
		case command.FoldEqual(word, "BCAST"):
			wanted.Broadcast = true
		case command.FoldEqual(word, "OPTIN"):
			wanted.OptIn = true
		case command.FoldEqual(word, "OPTOUT"):
			wanted.OptOut = true
		case command.FoldEqual(word, "NOLOOP"):
			wanted.NoLoop = true
		default:
			return nil, command.ErrSyntax
		}
	}
	return wanted, nil
}

// redirect reads the client ID of REDIRECT.
func (t *Table) redirect(wanted *client.Tracker, word []byte) error {
	id, ok := resp.ParseInt(word)
	switch {
	case wanted.Redirect != 0:
		return command.Refusal("ERR A client can only redirect to a single other client")
	case !ok:
		return command.ErrNotAnInteger
	case t.Clients.Get(id) == nil:
		return command.Refusal("ERR The client ID you want redirect to does not exist")
	}
	wanted.Redirect = id
	return nil
}

// maxPrefixes bounds the prefixes of one client.
const maxPrefixes = 256

// checkOptions returns an error if the options exclude one another, or the client may not change
// its earlier options to them. In broadcasting mode, it adds the earlier prefixes.
func checkOptions(t *client.Tracker, before *client.Tracker) error {
	const switched = " before disabling tracking for this client, and then re-enabling it with a different mode."
	switch {
	case !t.Broadcast && t.Prefixes != nil:
		return command.Refusal("ERR PREFIX option requires BCAST mode to be enabled")
	case before != nil && before.Broadcast != t.Broadcast:
		return command.Refusal("ERR You can't switch BCAST mode on/off" + switched)
	case t.Broadcast && (t.OptIn || t.OptOut):
		return command.Refusal("ERR OPTIN and OPTOUT are not compatible with BCAST")
	case t.OptIn && t.OptOut:
		return command.Refusal("ERR You can't specify both OPTIN mode and OPTOUT mode")
	case before != nil && (t.OptIn && before.OptOut || t.OptOut && before.OptIn):
		return command.Refusal("ERR You can't switch OPTIN/OPTOUT mode" + switched)
	case !t.Broadcast:
		return nil
	}
	return joinPrefixes(t, before)
}

// joinPrefixes adds the prefixes of an earlier tracker, and returns an error if prefixes overlap.
// If there is no prefix, changes of all keys are broadcast.
func joinPrefixes(t *client.Tracker, before *client.Tracker) error {
	const never = " Prefixes for a single client must not overlap."
	var known []string
	if before != nil {
		known = before.Prefixes
	}
	for i, prefix := range t.Prefixes {
		for _, other := range known {
			if overlap(prefix, other) {
				return command.Refusal(fmt.Sprintf("ERR Prefix '%s' overlaps with an existing prefix '%s'.", prefix, other) + never)
			}
		}
		for _, other := range t.Prefixes[i+1:] {
			if overlap(prefix, other) {
				return command.Refusal(fmt.Sprintf("ERR Prefix '%s' overlaps with another provided prefix '%s'.", prefix, other) +
					never)
			}
		}
	}
	if t.Prefixes == nil {
		t.Prefixes = []string{""}
	}
	t.Prefixes = slices.Compact(slices.Sorted(slices.Values(append(t.Prefixes, known...))))
	if len(t.Prefixes) > maxPrefixes {
		return command.Refusal("ERR too many prefixes")
	}
	return nil
}

// overlap reports whether one of two prefixes begins with the other.
func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

func (t *Table) cachingRow() *command.Command {
	return &command.Command{
		Name: "client|caching", Group: "connection", Since: "6.0.0", Complexity: "O(1)",
		Flags:   trackingFlags,
		Summary: "Sets whether the keys that the next call or transaction reads are tracked.",
		Args:    []command.Arg{command.Word("YES|NO")}, Reply: "OK.",
		Run: func(c *command.Call) error {
			word, t := c.Word(), c.Client.Tracker.Load()
			switch {
			case t == nil:
				return command.Refusal("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
			case command.FoldEqual(word, "YES") && !t.OptIn:
				return command.Refusal("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
			case command.FoldEqual(word, "NO") && !t.OptOut:
				return command.Refusal("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
			case !command.FoldEqual(word, "YES") && !command.FoldEqual(word, "NO"):
				return command.ErrSyntax
			}
			before := c.Caching
			c.Caching = true
			c.OnRollback(func() { c.Caching = before })
			c.Out.Status("OK")
			return nil
		},
	}
}

func (t *Table) trackingInfoRow() *command.Command {
	return &command.Command{
		Name: "client|trackinginfo", Group: "connection", Since: "6.2.0", Complexity: "O(1)",
		Flags: trackingFlags, Summary: "Describes the client's tracking.",
		Reply: "A map: flags, redirect, prefixes.",
		Run: func(c *command.Call) error {
			t := c.Client.Tracker.Load()
			c.Out.Map(3)
			c.Out.BulkString("flags")
			flags := flagWords(t, c.Caching)
			c.Out.Set(len(flags))
			for _, flag := range flags {
				c.Out.BulkString(flag)
			}
			c.Out.Field("redirect").Int(t.Target())
			var prefixes []string
			if t != nil {
				prefixes = t.Prefixes
			}
			c.Out.Field("prefixes").BulkStrings(prefixes)
			return nil
		},
	}
}

// flagWords returns the flags that CLIENT TRACKINGINFO shows.
func flagWords(t *client.Tracker, caching bool) (words []string) {
	if t == nil {
		return []string{"off"}
	}
	words = []string{"on"}
	for _, w := range []struct {
		on   bool
		word string
	}{
		{t.Broadcast, "bcast"}, {t.OptIn, "optin"}, {t.OptIn && caching, "caching-yes"}, {t.OptOut, "optout"},
		{t.OptOut && caching, "caching-no"}, {t.NoLoop, "noloop"}, {t.Broken.Load(), "broken_redirect"},
	} {
		if w.on {
			words = append(words, w.word)
		}
	}
	return words
}

func (t *Table) getRedirRow() *command.Command {
	return &command.Command{
		Name: "client|getredir", Group: "connection", Since: "6.0.0", Complexity: "O(1)",
		Flags: trackingFlags, Summary: "Returns the client to which tracking is redirected.",
		Reply: "The other client's id; 0 without redirection, -1 if tracking is off.",
		Run: func(c *command.Call) error {
			c.Out.Int(c.Client.Tracker.Load().Target())
			return nil
		},
	}
}
