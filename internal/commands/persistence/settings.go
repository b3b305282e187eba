package persistence

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"cellserver/internal/option"
	"cellserver/internal/persist"
)

// Settings are the values of the family's options.
type Settings struct {
	Dir        string // the folder; empty if keys are in memory only
	Wait       int    // seconds for which a startup waits for another server that uses the folder
	OnFault    string // whether to start if a file is damaged: refuse or start
	FileName   string // name of the file of SAVE and BGSAVE
	StopWrites string // yes or no: stop-writes-on-bgsave-error

	save       saveRules
	appendOnly string // as it was set: yes, no, or empty
	sync       string // appendfsync: everysec or no
}

// NewSettings returns the defaults.
func NewSettings() Settings {
	return Settings{Wait: 60, OnFault: "refuse", FileName: persist.DefaultRDBName, StopWrites: "no", sync: "everysec"}
}

// maxSeconds bounds times, so that nanoseconds fit in an int64.
const maxSeconds = 1 << 30

// Options describes the settings.
func (s *Settings) Options() []*option.Option {
	return []*option.Option{
		{Name: "dir", Group: option.Persistence, Kind: option.Text(&s.Dir, "path"),
			Help: "folder in which keys survive a restart; without it, they are in memory only"},
		{Name: "dir-wait", Group: option.Persistence, Kind: option.Time(&s.Wait, time.Second, 0, maxSeconds),
			Help: "seconds to wait at startup for another server that uses the folder",
			Use:  "Lower it if a supervisor expects an error sooner; 0 does not wait."},
		{Name: "dir-fault", Group: option.Persistence, Kind: option.Choice(&s.OnFault, "refuse", "start"),
			Help: "if a file in the folder is damaged: refuse to start, or start with what can be read",
			Use:  "Choose start if serving without some limits is better than not serving."},
		{Name: "appendonly", Group: option.Persistence, Kind: appendOnly{s},
			Help: "yes with --dir, and no without: it exists for tools that read it, and cannot be changed"},
		{Name: "appendfsync", Group: option.Persistence, Change: option.Live,
			Kind: option.ParsedText(&s.sync, "everysec|no", "everysec, no", parseFsync),
			Help: "when changes are synced to the disk: once a second, or when the system decides; they are written once a second in either case"},
		{Name: "dbfilename", Group: option.Persistence, Change: option.Live, Protected: true,
			Kind: option.ParsedText(&s.FileName, "name", "", parseName),
			Help: "file in the folder, in Redis's format, that SAVE and BGSAVE write"},
		{Name: "save", Group: option.Persistence, Change: option.Live, Words: true, Joined: true,
			Kind: option.Parsed[saveRules]{To: &s.save, Parse: parseRules, Format: saveRules.String, Word: "rules",
				Wrong: "it must be pairs of seconds and changed keys, such as '3600 1 300 100', or '' for none"},
			Help: "when to write this file: pairs of seconds and changed keys, such as '3600 1 300 100'; the file is not loaded at startup"},
		{Name: "stop-writes-on-bgsave-error", Group: option.Persistence, Kind: option.YesNo(&s.StopWrites),
			Change: option.Live,
			Help:   "refuse commands that may write, and PING, while the folder cannot be written (MISCONF)"},
	}
}

// NoSync reports whether the system decides when changes reach the disk.
func (s *Settings) NoSync() bool { return s.sync == "no" }

// Check returns an error if the settings contradict one another.
func (s *Settings) Check() error {
	switch {
	case s.appendOnly == "yes" && s.Dir == "":
		return &option.Conflict{Name: "appendonly",
			Reason: "appendonly yes: there is no folder for the journal; name one with --dir"}
	case s.appendOnly == "no" && s.Dir != "":
		return &option.Conflict{Name: "appendonly",
			Reason: "appendonly no: with --dir, changes are always written to the folder; leave out one of the two"}
	case len(s.save) > 0 && s.Dir == "":
		return &option.Conflict{Name: "save", Reason: "save: there is no folder for the file; name one with --dir"}
	}
	return nil
}

// Effects returns the effects of the settings that may change at run time.
func (f *Family) Effects(s *Settings) []option.Effect {
	return []option.Effect{
		{Apply: s.Check, Names: []string{"save"}},
		option.On(func() { name := s.FileName; f.fileName.Store(&name) }, "dbfilename"),
		option.On(func() { rules := s.save; f.rules.Store(&rules); f.Tick() }, "save"),
		option.On(func() { f.refuseWrites.Store(s.StopWrites == "yes"); f.Tick() }, "stop-writes-on-bgsave-error"),
		option.On(func() {
			f.noSync.Store(s.NoSync())
			if f.Folder != nil {
				f.Folder.SetNoSync(s.NoSync())
			}
		}, "appendfsync"),
	}
}

// appendOnly is the option.Kind of appendonly, which follows from dir.
type appendOnly struct{ of *Settings }

func (a appendOnly) Set(text string) error {
	if err := a.Check(text); err != nil {
		return err
	}
	a.of.appendOnly = strings.ToLower(text)
	return nil
}

func (a appendOnly) Check(text string) error {
	if !strings.EqualFold(text, "yes") && !strings.EqualFold(text, "no") {
		return errors.New("it must be one of yes, no")
	}
	return nil
}

func (a appendOnly) String() string { return a.Show() }
func (a appendOnly) Type() string   { return "yes|no" }
func (a appendOnly) Range() string  { return "yes, no" }

func (a appendOnly) Show() string {
	if a.of.Dir != "" {
		return "yes"
	}
	return "no"
}

// parseFsync checks a value of appendfsync.
func parseFsync(text string) (string, error) {
	switch text = strings.ToLower(text); text {
	case "everysec", "no":
		return text, nil
	case "always":
		return "", errors.New("always is not supported: changes are written once a second, not with each command; use everysec")
	}
	return "", errors.New("it must be one of everysec, no")
}

// parseName checks the name of a file, without a folder.
func parseName(text string) (string, error) {
	if text == "" || text == "." || text == ".." || strings.ContainsAny(text, "/\\\x00") {
		return "", errors.New("dbfilename can't be a path, just a filename")
	}
	return text, nil
}

// saveRules are the rules of the option save. Each requires a save if the last one was at least so
// many seconds ago, and at least so many keys have changed since.
type saveRules []saveRule

type saveRule struct{ seconds, changes int }

// isDue reports whether a rule requires a save. now is in Unix seconds.
func (rules saveRules) isDue(s *persist.RDB, now int64) bool {
	return !s.Saving && slices.ContainsFunc(rules, func(rule saveRule) bool {
		return s.Changes >= int64(rule.changes) && now-s.LastSave >= int64(rule.seconds)
	})
}

// parseRules parses the option save. If the text is invalid, it returns Redis's error.
func parseRules(text string) (rules saveRules, err error) {
	invalid := errors.New("Invalid save parameters") //lint:ignore ST1005 it is Redis's text, which clients see
	words := strings.Fields(text)
	if len(words)%2 != 0 {
		return nil, invalid
	}
	for ; len(words) > 0; words = words[2:] {
		seconds, err1 := strconv.Atoi(words[0])
		changes, err2 := strconv.Atoi(words[1])
		if err1 != nil || err2 != nil || seconds < 1 || seconds > maxSeconds || changes < 0 {
			return nil, invalid
		}
		rules = append(rules, saveRule{seconds, changes})
	}
	return rules, nil
}

func (rules saveRules) String() string {
	var words []string
	for _, rule := range rules {
		words = append(words, strconv.Itoa(rule.seconds), strconv.Itoa(rule.changes))
	}
	return strings.Join(words, " ")
}
