package commands

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// CONFIG SET: what can be changed while the server runs.

var configSet = Command{
	Name: "config|set", Group: "server", Category: "none", Since: "2.0.0", Complexity: "O(N) in the number of settings", Min: 4,
	Flags:   Admin | Dangerous | NoScript | Loading | Stale,
	Tips:    []string{allNodes, "response_policy:all_succeeded"},
	Summary: "Changes settings while the server runs: all that are named, or none.",
	Args:    []Arg{Word("parameter value [parameter value ...]").Many()}, Reply: "OK.",
	Run: func(c *Call) error {
		words := c.Many()
		if len(words)%2 != 0 {
			return errArity(c.row)
		}
		c.foldOwn()
		in := c.instance
		in.settingsMu.Lock()
		defer in.settingsMu.Unlock()
		changes, err := in.changes(c.client, words)
		if err != nil {
			return err
		}
		if name, err := in.make(changes); err != nil {
			return errConfig(name, err.Error())
		}
		if c.Session != nil { // what it pipelines behind this is to see it
			c.Session.careful = c.Session.careful || in.concerns.Load() != 0
		}
		c.Out.Status("OK")
		return nil
	},
}

// change is a setting that CONFIG SET names.
type change struct {
	setting  Setting
	from, to string
}

// make makes all changes or, with the name of the one that is to blame, none. It needs the lock.
func (in *Instance) make(changes []change) (blamed string, err error) {
	done := 0
	defer func() {
		if err != nil {
			for _, change := range changes[:done] {
				_ = change.setting.Set(change.from) // which it was
			}
		}
	}()
	names := make([]string, len(changes))
	for i, change := range changes {
		names[i] = change.setting.Name
		if err := change.setting.Set(change.to); err != nil {
			return names[i], err
		}
		done++
	}
	if in.settle != nil {
		return in.settle(names)
	}
	return "", nil
}

// changes finds the settings, before any is changed. It needs the lock.
func (in *Instance) changes(by *Session, words [][]byte) (list []change, err error) {
	named := make(map[string]bool)
	for ; len(words) > 0; words = words[2:] {
		s, ok := in.settingNamed(string(words[0]))
		switch {
		case !ok:
			return nil, refusal(fmt.Sprintf("ERR Unknown option or number of arguments for CONFIG SET - '%.128s'", words[0]))
		case s.Set == nil:
			return nil, errConfig(s.Name, ErrImmutable.Error())
		case !in.mayChange(by, s.Name):
			return nil, errConfig(s.Name, "can't set protected config")
		case named[s.Name]:
			return nil, errConfig(s.Name, "duplicate parameter")
		}
		named[s.Name] = true
		list = append(list, change{s, s.Value(), string(words[1])})
	}
	return list, nil
}

// ErrImmutable is said of a setting that can only be chosen at the start.
var ErrImmutable = errors.New("can't set immutable config")

func errConfig(name, why string) error {
	return refusal(fmt.Sprintf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", name, why))
}

// settingNamed finds a setting by its name in any case. It needs the lock.
func (in *Instance) settingNamed(name string) (Setting, bool) {
	for _, s := range in.settings {
		if strings.EqualFold(s.Name, name) {
			return s, true
		}
	}
	return Setting{}, false
}

// setting is the value of a setting by its name, "" if there is none.
func (in *Instance) setting(name string) string {
	in.settingsMu.Lock()
	defer in.settingsMu.Unlock()
	if s, ok := in.settingNamed(name); ok {
		return s.Value()
	}
	return ""
}

var configResetStat = Command{
	Name: "config|resetstat", Group: "server", Category: "none", Since: "2.0.0", Complexity: "O(N) in the number of commands",
	Flags:   Admin | Dangerous | NoScript | Loading | Stale | Whole,
	Summary: "Has INFO count from 0 again.", Reply: "OK.",
	Run: func(c *Call) error {
		c.foldOwn()
		c.instance.resetStats(c.View)
		c.Out.Status("OK")
		return nil
	},
}

var configRewrite = Command{
	Name: "config|rewrite", Group: "server", Category: "none", Since: "2.8.0", Complexity: "O(1)",
	Flags:   Admin | Dangerous | NoScript | Loading | Stale,
	Summary: "Refused: settings come from the command line and the environment, not from a file.", Reply: "An error.",
	Run: func(*Call) error { return refusal("ERR The server is running without a config file") },
}

// NumberFrom reads an integer for CONFIG SET, with Redis's words for what is none.
func NumberFrom(text string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, errors.New("argument couldn't be parsed into an integer")
	case err != nil || n < low || n > high:
		return 0, fmt.Errorf("argument must be between %d and %d inclusive", low, high)
	}
	return n, nil
}

// units are redis.conf's: 1k is 1000, 1kb is 1024.
var units = []struct {
	suffix string
	bytes  int64
}{{"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}, {"g", 1e9}, {"m", 1e6}, {"k", 1e3}, {"b", 1}, {"", 1}}

// ParseSize reads a number of bytes, such as 65536, 512kb, 64mb or 1gb, as redis.conf has them; ok is false if it is none, or 2^62 or more.
func ParseSize(text string) (bytes int64, ok bool) {
	text = strings.ToLower(text)
	for _, u := range units {
		if digits, found := strings.CutSuffix(text, u.suffix); found {
			n, err := strconv.ParseInt(digits, 10, 64)
			ok := err == nil && n >= 0 && n < 1<<62/u.bytes && digits[0] != '+'
			return n * u.bytes, ok
		}
	}
	return 0, false
}

// errNotMemory is said of what is no number of bytes.
var errNotMemory = errors.New("argument must be a memory value")
