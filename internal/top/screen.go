package top

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// Sequences of a terminal (ECMA-48, and xterm's second screen, which keeps what was shown before).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseRest   = "\x1b[J"
	bold        = "\x1b[1m"
	plain       = "\x1b[m"
)

// result is a sample, or why there is none.
type result struct {
	sample *sample
	err    error
}

// live shows views until the user leaves. If the server does not answer any more, it shows why, and tries
// again.
func live(s *sampler, interval time.Duration, in, out *os.File) error {
	first, err := s.take()
	if err != nil {
		return err
	}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	defer term.Restore(int(in.Fd()), before) //nolint:errcheck // nothing else could restore the terminal
	_, _ = out.WriteString(enterScreen)
	defer func() { _, _ = out.WriteString(leaveScreen) }()
	ctx, leave := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer leave()
	go func() {
		readKeys(in)
		leave()
	}()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	p := &painter{view: view{address: s.last, now: first}, out: out}
	return p.run(ctx, collect(ctx, s, interval), resized)
}

// collect takes samples until the context is done. A server that has stopped may let it wait for a reply
// forever; the user can leave nevertheless.
func collect(ctx context.Context, s *sampler, interval time.Duration) <-chan result {
	results := make(chan result)
	go func() {
		defer s.close()
		for {
			select {
			case <-time.After(interval):
			case <-ctx.Done():
				return
			}
			sample, err := s.take()
			select {
			case results <- result{sample, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return results
}

// readKeys returns when a key was pressed that leaves: q, Ctrl-C, Ctrl-D, or the end of the input.
func readKeys(in *os.File) {
	b := make([]byte, 64)
	for {
		n, err := in.Read(b)
		if err != nil || strings.ContainsAny(string(b[:n]), "qQ\x03\x04") {
			return
		}
	}
}

// painter paints the view on a terminal.
type painter struct {
	view view
	err  error // why there is no newer sample
	out  *os.File
}

// run paints each sample, and paints again when the terminal has another size.
func (p *painter) run(ctx context.Context, results <-chan result, resized <-chan os.Signal) error {
	for {
		if err := p.paint(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-resized:
		case r := <-results:
			if p.err = r.err; r.err == nil {
				p.view.before, p.view.now = p.view.now, r.sample
			}
		}
	}
}

func (p *painter) paint() error {
	width, height, err := term.GetSize(int(p.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	_, err = p.out.WriteString(frame(p.view, p.err, width, height))
	return err
}

// frame returns what paints a view. It paints over the last one instead of erasing it first, so that
// nothing flickers.
func frame(v view, err error, width, height int) string {
	var all []line
	if err != nil {
		all = append(all, line{text: "! no answer: " + err.Error()}, line{})
	}
	all = append(all, v.lines(height-len(all))...)
	var text strings.Builder
	text.WriteString(home)
	for i, l := range all[:min(len(all), height)] {
		if i > 0 {
			text.WriteString("\r\n")
		}
		if l.heading {
			text.WriteString(bold)
		}
		text.WriteString(cut(l.text, width))
		if l.heading {
			text.WriteString(plain)
		}
		text.WriteString(eraseLine)
	}
	text.WriteString(eraseRest)
	return text.String()
}

// cut returns the beginning of a text that fits into a line. What a server sends, such as an error, may
// contain anything: a terminal gets only printable ASCII of it, so that it cannot be controlled.
func cut(text string, width int) string {
	text = printable(text)
	return text[:min(len(text), width)]
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}
