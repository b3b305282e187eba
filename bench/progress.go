//go:build linux

package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
)

// progress shows on stderr what is being done: on a terminal in one line that is overwritten,
// otherwise in one line per step.
type progress struct {
	out      *os.File
	terminal bool
	start    time.Time
	scenario string
}

func newProgress(out *os.File) *progress {
	return &progress{out: out, terminal: term.IsTerminal(int(out.Fd())), start: time.Now()}
}

func (p *progress) begin(scenario string) { p.scenario = scenario }

func (p *progress) say(what string) {
	before, after := "", "\n"
	if p.terminal {
		before, after = "\r\x1b[K", ""
	}
	fmt.Fprintf(p.out, "%s%s: %s, %s since the start%s", before, p.scenario, what, time.Since(p.start).Round(time.Second),
		after)
}

func (p *progress) round(round, rounds int, server string) {
	if round == 0 {
		p.say("warming up " + server)
		return
	}
	p.say(fmt.Sprintf("round %d of %d, %s", round, rounds, server))
}

// end clears the line, so that something else can be printed.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
