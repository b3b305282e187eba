package commands

import (
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"fmt"
	"slices"
	"strings"
)

// CLIENT TRACKING and its like: which keys a client caches, and how it is told that they have changed.

var clientTracking = command.Command{
	Name: "client|tracking", Group: "connection", Since: "6.0.0", Complexity: "O(N) in the number of prefixes", Flags: aboutClients,
	Summary: "Has the client told when keys change that it has read, so that it can cache them.",
	Args:    []command.Arg{command.Word("ON|OFF"), command.Word("[REDIRECT client-id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]").Optional().Many()},
	Reply:   "OK. A change is told as a push of RESP3, invalidate and the keys, or nil for all of them; with REDIRECT to another client.",
	Run: func(c *command.Call) error {
		status := c.Word()
		wanted, err := trackingOptions(c, c.Many())
		if err != nil {
			return err
		}
		switch {
		case command.FoldEqual(status, "ON"):
			if err := wanted.follows(clientOf(c).tracker.Load()); err != nil {
				return err
			}
			sessionOf(c).track(wanted)
		case command.FoldEqual(status, "OFF"):
			sessionOf(c).track(nil)
		default:
			return command.ErrSyntax
		}
		c.Out.Status("OK")
		return nil
	},
}

func trackingOptions(c *command.Call, words [][]byte) (*tracker, error) {
	t := new(tracker)
	for ; len(words) > 0; words = words[1:] {
		switch word := words[0]; {
		case command.FoldEqual(word, "REDIRECT") && len(words) > 1:
			words = words[1:]
			if err := redirect(c, t, words[0]); err != nil {
				return nil, err
			}
		case command.FoldEqual(word, "PREFIX") && len(words) > 1:
			words = words[1:]
			if err := c.CheckKey(words[0]); err != nil {
				return nil, err
			}
			t.prefixes = append(t.prefixes, string(words[0]))
		case command.FoldEqual(word, "BCAST"):
			t.broadcast = true
		case command.FoldEqual(word, "OPTIN"):
			t.optIn = true
		case command.FoldEqual(word, "OPTOUT"):
			t.optOut = true
		case command.FoldEqual(word, "NOLOOP"):
			t.noLoop = true
		default:
			return nil, command.ErrSyntax
		}
	}
	return t, nil
}

func redirect(c *command.Call, t *tracker, word []byte) error {
	id, ok := resp.ParseInt(word)
	switch {
	case t.redirect != 0:
		return command.Refusal("ERR A client can only redirect to a single other client")
	case !ok:
		return command.ErrNotAnInteger
	case instanceOf(c).clients.get(id) == nil:
		return command.Refusal("ERR The client ID you want redirect to does not exist")
	}
	t.redirect = id
	return nil
}

// maxPrefixes bounds what one client has broadcast.
const maxPrefixes = 256

// follows says whether the options agree with one another and with those before, and takes over the prefixes of those.
func (t *tracker) follows(before *tracker) error {
	const switched = " before disabling tracking for this client, and then re-enabling it with a different mode."
	switch {
	case !t.broadcast && t.prefixes != nil:
		return command.Refusal("ERR PREFIX option requires BCAST mode to be enabled")
	case before != nil && before.broadcast != t.broadcast:
		return command.Refusal("ERR You can't switch BCAST mode on/off" + switched)
	case t.broadcast && (t.optIn || t.optOut):
		return command.Refusal("ERR OPTIN and OPTOUT are not compatible with BCAST")
	case t.optIn && t.optOut:
		return command.Refusal("ERR You can't specify both OPTIN mode and OPTOUT mode")
	case before != nil && (t.optIn && before.optOut || t.optOut && before.optIn):
		return command.Refusal("ERR You can't switch OPTIN/OPTOUT mode" + switched)
	case !t.broadcast:
		return nil
	}
	return t.joinPrefixes(before)
}

func (t *tracker) joinPrefixes(before *tracker) error {
	const never = " Prefixes for a single client must not overlap."
	var known []string
	if before != nil {
		known = before.prefixes
	}
	for i, prefix := range t.prefixes {
		for _, other := range known {
			if overlap(prefix, other) {
				return command.Refusal(fmt.Sprintf("ERR Prefix '%s' overlaps with an existing prefix '%s'.", prefix, other) + never)
			}
		}
		for _, other := range t.prefixes[i+1:] {
			if overlap(prefix, other) {
				return command.Refusal(fmt.Sprintf("ERR Prefix '%s' overlaps with another provided prefix '%s'.", prefix, other) + never)
			}
		}
	}
	if t.prefixes == nil {
		t.prefixes = []string{""}
	}
	t.prefixes = slices.Compact(slices.Sorted(slices.Values(append(t.prefixes, known...))))
	if len(t.prefixes) > maxPrefixes {
		return command.Refusal("ERR too many prefixes")
	}
	return nil
}

func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

var clientCaching = command.Command{
	Name: "client|caching", Group: "connection", Since: "6.0.0", Complexity: "O(1)", Flags: aboutClients,
	Summary: "Says whether the client caches what the next call, or transaction, reads.",
	Args:    []command.Arg{command.Word("YES|NO")}, Reply: "OK.",
	Run: func(c *command.Call) error {
		word, t := c.Word(), clientOf(c).tracker.Load()
		switch {
		case t == nil:
			return command.Refusal("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
		case command.FoldEqual(word, "YES") && !t.optIn:
			return command.Refusal("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
		case command.FoldEqual(word, "NO") && !t.optOut:
			return command.Refusal("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
		case !command.FoldEqual(word, "YES") && !command.FoldEqual(word, "NO"):
			return command.ErrSyntax
		}
		c.Caching = true
		c.Out.Status("OK")
		return nil
	},
}

var clientTrackingInfo = command.Command{
	Name: "client|trackinginfo", Group: "connection", Since: "6.2.0", Complexity: "O(1)", Flags: aboutClients,
	Summary: "Describes what the client is told.", Reply: "A map: flags, redirect, prefixes.",
	Run: func(c *command.Call) error {
		t := clientOf(c).tracker.Load()
		c.Out.Map(3)
		c.Out.BulkString("flags")
		flags := t.words(c.Caching)
		c.Out.Set(len(flags))
		for _, flag := range flags {
			c.Out.BulkString(flag)
		}
		c.Out.BulkString("redirect")
		c.Out.Int(t.target())
		c.Out.BulkString("prefixes")
		var prefixes []string
		if t != nil {
			prefixes = t.prefixes
		}
		c.Out.Array(len(prefixes))
		for _, prefix := range prefixes {
			c.Out.BulkString(prefix)
		}
		return nil
	},
}

// words are the flags of CLIENT TRACKINGINFO.
func (t *tracker) words(caching bool) (words []string) {
	if t == nil {
		return []string{"off"}
	}
	words = []string{"on"}
	for _, w := range []struct {
		so   bool
		word string
	}{
		{t.broadcast, "bcast"}, {t.optIn, "optin"}, {t.optIn && caching, "caching-yes"}, {t.optOut, "optout"},
		{t.optOut && caching, "caching-no"}, {t.noLoop, "noloop"}, {t.broken.Load(), "broken_redirect"},
	} {
		if w.so {
			words = append(words, w.word)
		}
	}
	return words
}

var clientGetRedir = command.Command{
	Name: "client|getredir", Group: "connection", Since: "6.0.0", Complexity: "O(1)", Flags: aboutClients,
	Summary: "Says who is told in the client's place.", Reply: "The other client's id; 0 for itself, -1 if nobody is told.",
	Run: func(c *command.Call) error {
		c.Out.Int(clientOf(c).tracker.Load().target())
		return nil
	},
}
