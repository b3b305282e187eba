package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// write writes the report: as a page to a file, and to the output as JSON or text.
func (r *Report) write(o *options, e *Environment) error {
	if o.html != "" {
		if err := r.writePage(o.html); err != nil {
			return err
		}
	}
	if o.json {
		out := json.NewEncoder(e.Stdout)
		out.SetIndent("", "  ")
		out.SetEscapeHTML(false)
		return out.Encode(r)
	}
	p := &printer{out: e.Stdout, width: 80, color: e.Color}
	if e.Width > 0 {
		p.width = min(max(e.Width, 60), 120)
	}
	r.print(p)
	return p.err
}

func (r *Report) writePage(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) // it has subjects
	if err != nil {
		return err
	}
	err = r.page(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// headline returns the first lines of the report: the result in one sentence.
func (r *Report) headline() string {
	text := fmt.Sprintf("%s would have limited %s of requests and %s of %s", r.Policy, percent(r.Limited, r.Requests),
		number(int64(r.LimitedSubjects)), count(int64(r.Subjects), "subject"))
	if r.Limited == 0 {
		text = fmt.Sprintf("%s would have limited none of %s of %s", r.Policy, count(r.Requests, "request"),
			count(int64(r.Subjects), "subject"))
	}
	if r.customers == 0 || len(r.Customers) == 0 {
		return text
	}
	first := r.Customers[:min(3, len(r.Customers))]
	text += fmt.Sprintf("; %s: %s", countOf(int64(r.customers), "looks like a customer", "look like customers"),
		strings.Join(first, ", "))
	if r.customers > len(first) {
		text += ", ..."
	}
	return text
}

// printer writes the report for people.
type printer struct {
	out   io.Writer
	width int
	color bool
	err   error
}

// Text has the terminal's own colour, because the terminal's palette is not known: green on white is hard to read with
// xterm's palette (a contrast of 2.1 to 1), red on black with a console's, and faint text with most. So important text
// is bold, and only the bars of limited requests are red.
const (
	bold   = "1"
	red    = "31"
	column = 11 // of the words at the left
)

func (p *printer) paint(style, text string) string {
	if !p.color || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func (p *printer) line(text string) {
	if _, err := io.WriteString(p.out, text+"\n"); p.err == nil {
		p.err = err
	}
}

// item writes a word at the left and a text, which is broken between words.
func (p *printer) item(name, text string) {
	for i, line := range wrap(text, p.width-column-3) {
		if i > 0 {
			name = ""
		}
		p.line("  " + fmt.Sprintf("%-*s", column, name) + " " + line)
	}
}

func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// print writes the report.
func (r *Report) print(p *printer) {
	for _, line := range wrap(r.Headline, p.width) {
		p.line(p.paint(bold, line))
	}
	p.line("")
	r.printNotes(p)
	for i, l := range r.Limits {
		p.item([]string{"limits", ""}[min(i, 1)], l)
	}
	p.item("log", r.describeLog())
	p.item("requests", fmt.Sprintf("%s of %s", number(r.Requests), count(int64(r.Subjects), "subject")))
	limited := fmt.Sprintf("%s (%s) of %s", number(r.Limited), percent(r.Limited, r.Requests),
		count(int64(r.LimitedSubjects), "subject"))
	p.item("limited", limited)
	for _, b := range r.By {
		if len(r.By) > 1 || b.Name == "ban" || b.Name == "no subject" {
			p.item("", fmt.Sprintf("%s by %s", number(b.Limited), b.Name))
		}
	}
	if w := r.Worst; w != nil {
		p.item("worst", fmt.Sprintf("%s of %s in the minute from %s", number(w.Limited), count(w.Requests, "request"),
			w.At.Format("2006-01-02 15:04")))
	}
	if l := r.Longest; l != nil {
		p.item("longest", fmt.Sprintf("%s was refused for %s without a break", l.Subject, duration(l.Seconds)))
	}
	if r.Bans.Count > 0 {
		p.item("bans", fmt.Sprintf("%s of %s", number(r.Bans.Count), count(r.Bans.Subjects, "subject")))
	}
	r.printChanges(p)
	r.printAssumptions(p)
	r.printTimeline(p)
	r.printSubjects(p)
	r.printTable(p)
}

// printNotes writes what a reader must know before the numbers.
func (r *Report) printNotes(p *printer) {
	note := func(format string, args ...any) {
		for _, line := range wrap(fmt.Sprintf(format, args...), p.width) {
			p.line(p.paint(bold, line))
		}
	}
	if r.Log.Interrupted {
		note("Interrupted: this is about the part of the log that was read.")
	}
	if r.Log.Sample != "" {
		note("A sample: %s of the subjects, with all of their requests.", r.Log.Sample)
	}
	if r.Shadow {
		note("The policy is in shadow mode: it would count these requests, and let them pass.")
	}
	for _, f := range r.Log.Faults {
		text := ""
		if f.Text != "" {
			text = ": " + strconv.QuoteToGraphic(f.Text)
		}
		note("%s:%d: %s%s", newNames(false).show(f.File), f.Line, f.Why, text)
	}
	if r.Log.Late > 0 {
		note("%s further out of order than --disorder, and decided late.", count(r.Log.Late, "line"))
	}
	if r.Failed > 0 {
		note("%s got an error: the quantity is too large.", count(r.Failed, "request"))
	}
	if r.Log.Interrupted || r.Log.Sample != "" || r.Shadow || len(r.Log.Faults) > 0 || r.Log.Late > 0 || r.Failed > 0 {
		p.line("")
	}
}

func (r *Report) describeLog() string {
	l := &r.Log
	text := fmt.Sprintf("%s, %s, %s to %s", count(l.Lines, "line"), l.Format, l.From.Format("2006-01-02 15:04:05"),
		l.To.Format("2006-01-02 15:04:05 MST"))
	if l.Files > 1 {
		text = count(int64(l.Files), "file") + ", " + text
	}
	if l.Bad > 0 {
		text += fmt.Sprintf("; %s could not be read", count(l.Bad, "line"))
	}
	if l.Filtered > 0 {
		text += fmt.Sprintf("; %s left out", count(l.Filtered, "line"))
	}
	return text
}

func (r *Report) printChanges(p *printer) {
	c := r.Changes
	if c == nil {
		return
	}
	p.item("before", fmt.Sprintf("%s limited (%s)", count(c.Before, "request"), percent(c.Before, r.Requests)))
	p.item("newly", fmt.Sprintf("limited: %s; subjects that are limited only now: %s", count(c.Newly, "request"),
		number(int64(c.NewlySubjects))))
	p.item("", fmt.Sprintf("admitted: %s; subjects that are no longer limited: %s", count(c.Admitted, "request"),
		number(int64(c.FreedSubjects))))
}

// printAssumptions writes what the result depends on.
func (r *Report) printAssumptions(p *printer) {
	if r.Limited > 0 || r.Retries != nil {
		switch x := r.Retries; {
		case x == nil:
			p.item("assumed", "a refused client does not come again for that request (--clients give-up)")
		default:
			p.item("assumed", fmt.Sprintf("a refused client comes again, at most thrice (--clients retry): %s made, which "+
				"admitted %s, the latest after %s", countOf(x.Made, "retry", "retries"), count(x.Delayed, "request"),
				duration(x.Longest)))
		}
	}
	if r.Log.Already > 0 {
		p.item("", fmt.Sprintf("the log answered %s with 429: some of the others may be retries", count(r.Log.Already, "request")))
	}
	if e := r.Estimate; e != nil {
		text := "an estimate: the log has whole seconds, over which requests are spread evenly, and the limit fills " +
			"within seconds"
		if e.AtOnce != nil {
			text += fmt.Sprintf("; if all of a second came at once, %s", percent(*e.AtOnce, r.Requests))
		}
		p.item("", text)
	}
	if r.Missing > 0 {
		p.item("", fmt.Sprintf("%s without a subject", count(r.Missing, "request")))
	}
}

// printTimeline writes the requests over the time.
func (r *Report) printTimeline(p *printer) {
	width := p.width - column - 3
	bins, each := r.columns(width)
	if len(bins) < 2 {
		return
	}
	var most bin
	for _, b := range bins {
		most.requests, most.limited = max(most.requests, b.requests-b.limited), max(most.limited, b.limited)
	}
	p.line("")
	allowed, limited := make([]int64, len(bins)), make([]int64, len(bins))
	for i, b := range bins {
		allowed[i], limited[i] = b.requests-b.limited, b.limited
	}
	label := func(name string) string { return "  " + fmt.Sprintf("%-*s", column, name) + " " }
	p.line(label("allowed") + spark(allowed, most.requests))
	p.line(label("limited") + p.paint(red, spark(limited, most.limited)))
	from, to := r.Timeline[0].At, r.Timeline[0].At.Add(time.Duration(each*int64(len(bins))))
	layout := "15:04:05"
	if to.Sub(from) > 20*time.Hour {
		layout = "01-02 15:04"
	}
	gap := max(len(bins)-2*len(layout), 1)
	p.line(strings.Repeat(" ", column+3) + from.Format(layout) + strings.Repeat(" ", gap) + to.Format(layout))
	p.item("", fmt.Sprintf("one column is %v; the highest are %s allowed, %s limited", time.Duration(each), number(most.requests),
		number(most.limited)))
}

// columns returns the timeline in so many columns, and the time of one in nanoseconds.
func (r *Report) columns(count int) ([]bin, int64) {
	t := timeline{width: r.width}
	for _, b := range r.Timeline {
		t.bins = append(t.bins, bin{b.Requests, b.Limited})
	}
	return t.columns(count)
}

// spark draws numbers as bars. A number above 0 always has a bar.
func spark(numbers []int64, most int64) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	var out strings.Builder
	for _, n := range numbers {
		switch {
		case n == 0:
			out.WriteByte(' ')
		default:
			out.WriteRune(bars[min(int(float64(n)/float64(max(most, 1))*7.999), 7)])
		}
	}
	return strings.TrimRight(out.String(), " ")
}

func (r *Report) printSubjects(p *printer) {
	if len(r.Top) == 0 {
		return
	}
	p.line("")
	extra := ""
	if r.Changes != nil {
		extra = "     before"
	}
	width := p.width - 2 - 44 - len(extra)
	p.line("  " + fmt.Sprintf("%-*s   requests    limited%s   share  succeeded", width, "most limited", extra))
	for _, s := range r.Top {
		name := s.Subject
		if utf8.RuneCountInString(name) > width {
			name = string([]rune(name)[:width-1]) + "…"
		}
		name += strings.Repeat(" ", width-utf8.RuneCountInString(name))
		before, succeeded := "", "-"
		if s.Before != nil {
			before = fmt.Sprintf(" %10s", number(*s.Before))
		}
		if s.Succeeded != nil {
			succeeded = fmt.Sprintf("%.0f %%", 100**s.Succeeded)
		}
		limited := p.paint(bold, fmt.Sprintf("%10s", number(s.Limited)))
		p.line(fmt.Sprintf("  %s %10s %s%s %7s %10s", name, number(s.Requests), limited, before,
			percent(s.Limited, s.Requests), succeeded))
	}
	if more := r.LimitedSubjects - len(r.Top); more > 0 {
		p.line(fmt.Sprintf("  and %s more", number(int64(more))))
	}
}

func (r *Report) printTable(p *printer) {
	if len(r.Table) == 0 {
		return
	}
	p.line("")
	head, row := fmt.Sprintf("%-17s", "each limit times"), fmt.Sprintf("%-17s", "requests limited")
	for _, t := range r.Table {
		head += fmt.Sprintf("%9s", strconv.FormatFloat(t.Factor, 'g', -1, 64))
		row += fmt.Sprintf("%9s", percent(t.Limited, r.Requests))
	}
	p.line("  " + head)
	p.line("  " + row)
}

// number writes a number with commas.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func count(n int64, noun string) string { return countOf(n, noun, noun+"s") }

func countOf(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

// percent writes a part of a whole with two significant digits. A part above 0 is never written as 0 %.
func percent(part, whole int64) string {
	share := 100 * float64(part) / float64(max(whole, 1))
	switch {
	case part == 0:
		return "0 %"
	case share < 0.01:
		return "<0.01 %"
	case share < 1:
		return fmt.Sprintf("%.2f %%", share)
	case share < 10, share > 99.9 && part < whole:
		return fmt.Sprintf("%.1f %%", min(share, 99.9))
	}
	return fmt.Sprintf("%.0f %%", share)
}

func duration(seconds float64) string {
	d := time.Duration(seconds * 1e9)
	if d >= 10*time.Second {
		d = d.Round(time.Second)
	} else {
		d = d.Round(time.Millisecond)
	}
	return d.String()
}
