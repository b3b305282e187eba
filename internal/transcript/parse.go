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

	// replyLine knows a reply by its first characters. It is there to catch a forgotten "> " or "+"
	// when the file is read; whether the rest is well written shows when it is compared.
	replyLine = regexp.MustCompile(`^(?:[-+"\[{,=(!|0-9].*|(?:set|push)\[.*|#[tf]|_|nil|nil-array|closed)$`)
)

// Parse reads a conversation. Its errors name the file and the line.
func Parse(name string, text []byte) (*File, error) {
	f := &File{Name: name, lines: strings.Split(string(text), "\n")}
	for i, line := range f.lines {
		// What cannot be seen cannot be meant: a reply that ends in a space is written in quotes.
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
	case line == "@redis", line == "@redis8":
		return errors.New(line + " is about the whole file: put it before the first step")
	}
	return fmt.Errorf("unknown directive %s", line)
}

func (f *File) parseCommand(i int, client, text string) error {
	words, err := splitWords(text)
	if err != nil {
		return err
	}
	var send []byte // of no words: the client only listens
	if len(words) > 0 {
		send = appendCommand(nil, words)
	}
	f.speak(i, client, send)
	return nil
}

func (f *File) parseRaw(i int, client, quoted string) error {
	text, err := strconv.Unquote(quoted)
	if err != nil {
		return fmt.Errorf("raw bytes are quoted as in Go: %w", err)
	}
	f.speak(i, client, []byte(text))
	return nil
}

func (f *File) speak(i int, client string, send []byte) {
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
	if len(f.steps) == 0 || f.last().client == "" {
		return errors.New("a reply to nothing: no client spoke or listened before it")
	}
	f.last().replies = append(f.last().replies, reply{ours: want})
	return nil
}

// parseRedis attaches what a redis-server answers to the reply of ours on the line above.
func (f *File) parseRedis(i int, line string) error {
	want, err := parseExpected(i, line)
	if err != nil {
		return err
	}
	if !f.Redis && !f.Redis8 {
		return errors.New("a redis: line in a file without @redis or @redis8 at its top")
	}
	if len(f.steps) == 0 || len(f.last().replies) == 0 {
		return errors.New("a redis: line belongs directly under a reply of ours")
	}
	replies := f.last().replies
	above := &replies[len(replies)-1]
	if above.redis != nil || above.ours.line != i-1 {
		return errors.New("a redis: line belongs directly under a reply of ours")
	}
	above.redis = &want
	return nil
}

func (f *File) last() *step { return &f.steps[len(f.steps)-1] }

func parseExpected(i int, line string) (expected, error) {
	expression, isPattern := strings.CutPrefix(line, "~ ")
	switch {
	case isPattern && strings.HasPrefix(expression, "["):
		return expected{}, errors.New(`a pattern for an array begins with \[ (a bare [ begins a character class)`)
	case isPattern:
		pattern, err := regexp.Compile(`^(?:` + expression + `)$`)
		return expected{line: i, text: line, pattern: pattern}, err
	case !replyLine.MatchString(line):
		return expected{}, fmt.Errorf("neither a step nor a reply: %s", line)
	}
	return expected{line: i, text: line}, nil
}
