package transcript

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	commandLine = regexp.MustCompile(`^([A-Z]?)>(?: (.*))?$`)
	rawLine     = regexp.MustCompile(`^(?:([A-Z]) )?raw (".*")$`)

	// replyLine matches the first characters of a reply. It detects a forgotten "> " or "+" when
	// the file is parsed; other mistakes appear when replies are compared.
	replyLine = regexp.MustCompile(`^(?:[-+"\[{,=(!|0-9].*|(?:set|push)\[.*|#[tf]|_|nil|nil-array|closed)$`)
)

// Parse parses a transcript. Its errors name the file and the line.
func Parse(name string, text []byte) (*File, error) {
	f := &File{Name: name, lines: strings.Split(string(text), "\n")}
	for i, line := range f.lines {
		// Blanks at the end of a line have no meaning: a reply that ends in a blank is quoted.
		if err := f.parseLine(i, strings.TrimRight(line, " \t\r")); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
	}
	return f, nil
}

func (f *File) parseLine(i int, line string) error {
	switch {
	case line == "", line == "#", strings.HasPrefix(line, "# "):
		return nil
	case strings.HasPrefix(line, "@"):
		return f.parseDirective(i, line)
	case strings.HasPrefix(line, "redis: "):
		return f.parseRedis(i, strings.TrimPrefix(line, "redis: "))
	}
	if m := commandLine.FindStringSubmatch(line); m != nil {
		return f.parseCommand(i, m[1], m[2])
	}
	if m := rawLine.FindStringSubmatch(line); m != nil {
		return f.parseRaw(i, m[1], m[2])
	}
	return f.parseReply(i, line)
}

func (f *File) parseDirective(i int, line string) error {
	name, argument, _ := strings.Cut(line, " ")
	switch {
	case name == "@advance":
		d, err := time.ParseDuration(argument)
		if err != nil {
			return err
		}
		f.Advances = true
		f.steps = append(f.steps, step{line: i, advance: d})
		return nil
	case line == "@redis" && len(f.steps) == 0:
		f.Redis = true
		return nil
	case line == "@redis8" && len(f.steps) == 0:
		f.Redis8 = true
		return nil
	case name == "@memory" && len(f.steps) == 0 && argument != "":
		f.Memory = argument
		return nil
	case line == "@memory":
		return errors.New("@memory needs a reason")
	case line == "@redis", line == "@redis8", name == "@memory":
		return errors.New(name + " applies to the whole file: put it before the first step")
	}
	return fmt.Errorf("unknown directive %s", line)
}

func (f *File) parseCommand(i int, client, text string) error {
	words, err := splitWords(text)
	if err != nil {
		return err
	}
	var send []byte // nil without words: the client only receives
	if len(words) > 0 {
		send = appendCommand(nil, words)
	}
	f.addStep(i, client, send)
	return nil
}

func (f *File) parseRaw(i int, client, quoted string) error {
	text, err := strconv.Unquote(quoted)
	if err != nil {
		return fmt.Errorf("raw bytes are quoted as in Go: %w", err)
	}
	f.addStep(i, client, []byte(text))
	return nil
}

func (f *File) addStep(i int, client string, send []byte) {
	if client == "" {
		client = "A"
	}
	f.steps = append(f.steps, step{line: i, client: client, send: send})
}

func (f *File) parseReply(i int, line string) error {
	want, err := parseExpected(i, line)
	if err != nil {
		return err
	}
	if len(f.steps) == 0 || f.lastStep().client == "" {
		return errors.New("a reply without a step: no client sends or receives before it")
	}
	f.lastStep().replies = append(f.lastStep().replies, reply{ours: want})
	return nil
}

// parseRedis adds the reply of a redis-server to the reply on the line above.
func (f *File) parseRedis(i int, line string) error {
	want, err := parseExpected(i, line)
	if err != nil {
		return err
	}
	if !f.Redis && !f.Redis8 {
		return errors.New("a redis: line in a file that does not begin with @redis or @redis8")
	}
	if len(f.steps) == 0 || len(f.lastStep().replies) == 0 {
		return errors.New("a redis: line must directly follow a reply")
	}
	replies := f.lastStep().replies
	above := &replies[len(replies)-1]
	if above.redis != nil || above.ours.line != i-1 {
		return errors.New("a redis: line must directly follow a reply")
	}
	above.redis = &want
	return nil
}

func (f *File) lastStep() *step { return &f.steps[len(f.steps)-1] }

func parseExpected(i int, line string) (expected, error) {
	expression, isPattern := strings.CutPrefix(line, "~ ")
	switch {
	case isPattern && strings.HasPrefix(expression, "["):
		return expected{}, errors.New(`a pattern for an array begins with \[ (an unescaped [ begins a character class)`)
	case isPattern:
		pattern, err := regexp.Compile(`^(?:` + expression + `)$`)
		return expected{line: i, text: line, pattern: pattern}, err
	case !replyLine.MatchString(line):
		return expected{}, fmt.Errorf("neither a step nor a reply: %s", line)
	}
	text, times := parseTimes(line)
	return expected{line: i, text: text, times: times}, nil
}
