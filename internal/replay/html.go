package replay

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
	"time"
)

// pageHead is the part of the page that is the same for all reports. pageWriter writes the rest. Templates would do it
// too, but text/template and html/template call methods by names that only exist at run time, so a program that imports
// them keeps every exported method of every type: cellserver was 11 MB larger with them.
//
//go:embed page.html
var pageHead string

// pageWriter writes a page.
type pageWriter struct{ strings.Builder }

// put adds a text with arguments. It escapes them all, because subjects are chosen by clients.
func (w *pageWriter) put(format string, arguments ...any) {
	for i, a := range arguments {
		arguments[i] = html.EscapeString(fmt.Sprint(a))
	}
	fmt.Fprintf(w, format, arguments...)
}

// warn adds a paragraph if a condition is true.
func (w *pageWriter) warn(condition bool, format string, arguments ...any) {
	if condition {
		w.put(`<p class="warning">`+format+"</p>\n", arguments...)
	}
}

// fact adds an entry to the list of facts, if a condition is true. A fact without a name continues the one before it.
func (w *pageWriter) fact(condition bool, name, format string, arguments ...any) {
	if condition {
		w.put("<dt>"+name+"</dt><dd>"+format+"</dd>\n", arguments...)
	}
}

// page writes the report as a page that loads nothing else.
func (r *Report) page(out io.Writer) error {
	var w pageWriter
	w.WriteString(pageHead)
	w.header(r)
	w.WriteString("<main>\n")
	w.timeline(r.chart())
	w.facts(r)
	w.table(r)
	w.top(r)
	w.WriteString("</main>\n</body>\n</html>\n")
	_, err := io.WriteString(out, w.String())
	return err
}

func pageTime(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") }

func (w *pageWriter) header(r *Report) {
	w.put("<header>\n<h1>%s</h1>\n<p>%s lines, %s, %s to %s</p>\n", r.Headline, number(r.Log.Lines), r.Log.Format,
		pageTime(r.Log.From), pageTime(r.Log.To))
	w.warn(r.Log.Interrupted, "Interrupted: this is about the part of the log that was read.")
	w.warn(r.Log.Sample != "", "A sample: %s of the subjects, with all of their requests.", r.Log.Sample)
	w.warn(r.Shadow, "The policy is in shadow mode: it would count these requests, and let them pass.")
	w.warn(r.Log.Bad != 0, "%s could not be read.", count(r.Log.Bad, "line"))
	w.warn(r.Log.Late != 0, "%s further out of order than --disorder, and decided late.", count(r.Log.Late, "line"))
	w.warn(r.Failed != 0, "%s got an error: the quantity is too large.", count(r.Failed, "request"))
	w.WriteString("</header>\n")
}

func (w *pageWriter) timeline(c chart) {
	w.WriteString("<section class=\"wide\">\n<h2>Requests over the time</h2>\n" +
		"<p class=\"legend\"><span>allowed</span><span class=\"l\">limited</span></p>\n")
	w.put(`<svg viewBox="0 0 %v %v" preserveAspectRatio="none" role="img" `+
		`aria-label="Requests over the time: at most %s in %v">`+"\n"+
		`<polygon class="a" points="%s"/><polygon class="r" points="%s"/></svg>`+"\n",
		c.Width, c.Height, number(c.Most), c.Column, c.Allowed, c.Limited)
	w.put(`<p class="axis"><span>%s</span><span>at most %s in %v</span><span>%s</span></p>`+"\n</section>\n",
		c.From, number(c.Most), c.Column, c.To)
}

func (w *pageWriter) facts(r *Report) {
	w.WriteString("<section>\n<h2>The policy</h2>\n<dl>\n")
	w.fact(true, "policy", "<code>%s</code>", r.Policy)
	for _, l := range r.Limits {
		w.fact(true, "limit", "<code>%s</code>", l)
	}
	w.fact(true, "requests", "%s of %s", number(r.Requests), count(int64(r.Subjects), "subject"))
	w.put("<dt>limited</dt><dd class=\"limited\">%s (%s) of %s</dd>\n", number(r.Limited), percent(r.Limited, r.Requests),
		count(int64(r.LimitedSubjects), "subject"))
	for _, by := range r.By {
		w.fact(true, "", "%s by <code>%s</code>", number(by.Limited), by.Name)
	}
	if c := r.Changes; c != nil {
		w.fact(true, "before", "%s limited; %s newly limited, %s newly admitted",
			number(c.Before), number(c.Newly), number(c.Admitted))
	}
	if m := r.Worst; m != nil {
		w.fact(true, "worst minute", "%s: %s of %s limited", pageTime(m.At), number(m.Limited), number(m.Requests))
	}
	if l := r.Longest; l != nil {
		w.fact(true, "longest", "<code>%s</code> was refused for %s without a break", l.Subject, duration(l.Seconds))
	}
	w.fact(r.Bans.Count != 0, "bans", "%s of %s subjects", number(r.Bans.Count), number(r.Bans.Subjects))
	w.fact(r.Missing != 0, "no subject", "%s requests", number(r.Missing))
	w.assumptions(r)
	w.WriteString("</dl>\n</section>\n")
}

func (w *pageWriter) assumptions(r *Report) {
	if m := r.Retries; m != nil {
		w.fact(true, "assumed", "a refused client comes again, at most thrice: %s retries, which admitted %s requests",
			number(m.Made), number(m.Delayed))
	} else {
		w.fact(true, "assumed", "a refused client does not come again for that request")
	}
	w.fact(r.Log.Already != 0, "", "the log answered %s requests with 429: some of the others may be retries",
		number(r.Log.Already))
	if e := r.Estimate; e != nil {
		atOnce := ""
		if e.AtOnce != nil {
			atOnce = fmt.Sprintf("; if all of a second came at once, %s would be limited", number(*e.AtOnce))
		}
		w.fact(true, "", "an estimate: the log has whole seconds, over which requests are spread evenly%s", atOnce)
	}
}

func (w *pageWriter) table(r *Report) {
	if len(r.Table) == 0 {
		return
	}
	w.WriteString("<section>\n<h2>Other limits</h2>\n<table><thead><tr><th>each limit times</th><th>limited</th>" +
		"<th>share</th></tr></thead><tbody>\n")
	for _, row := range r.Table {
		w.put("<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td></tr>\n", strconv.FormatFloat(row.Factor, 'g', -1, 64),
			number(row.Limited), percent(row.Limited, r.Requests))
	}
	w.WriteString("</tbody></table>\n</section>\n")
}

func (w *pageWriter) top(r *Report) {
	if len(r.Top) == 0 {
		return
	}
	before := func(column string) string {
		if r.Changes == nil {
			return ""
		}
		return column
	}
	w.WriteString("<section class=\"wide\">\n<h2>The subjects that are limited most</h2>\n<div class=\"scroll\"><table>" +
		"<thead><tr><th>subject</th><th>requests</th><th>limited</th>" + before("<th>before</th>") +
		"<th>share</th><th>succeeded</th><th>longest</th></tr></thead><tbody>\n")
	for _, s := range r.Top {
		earlier, succeeded := "", "-"
		if s.Before != nil {
			earlier = number(*s.Before)
		}
		if s.Succeeded != nil {
			succeeded = fmt.Sprintf("%.0f %%", 100**s.Succeeded)
		}
		w.put("<tr><th scope=\"row\"><code>%s</code></th><td>%s</td><td class=\"limited\">%s</td>",
			s.Subject, number(s.Requests), number(s.Limited))
		w.WriteString(before("<td>" + html.EscapeString(earlier) + "</td>"))
		w.put("<td>%s</td><td>%s</td><td>%s</td></tr>\n", percent(s.Limited, s.Requests), succeeded, duration(s.Longest))
	}
	w.WriteString("</tbody></table></div>\n</section>\n")
}

// chart is the chart of the page: areas of requests over the time, the limited ones above the allowed ones.
type chart struct {
	Allowed, Limited string // the points of polygons
	Width, Height    int
	Most             int64
	From, To         string
	Column           time.Duration
}

func (r *Report) chart() (c chart) {
	c.Width, c.Height = 960, 180
	bins, each := r.columns(240)
	if len(bins) == 0 {
		return c
	}
	for _, b := range bins {
		c.Most = max(c.Most, b.requests)
	}
	c.Column = time.Duration(each)
	from := r.Timeline[0].At
	const layout = "2006-01-02 15:04:05"
	c.From, c.To = from.Format(layout), from.Add(c.Column*time.Duration(len(bins))).Format(layout)
	x := func(i int) float64 { return float64(i) * float64(c.Width) / float64(len(bins)) }
	y := func(n int64) float64 { return float64(c.Height) * (1 - float64(n)/float64(max(c.Most, 1))) }
	var allowed, all strings.Builder
	var back []string
	for i, b := range bins {
		low, high := y(b.requests-b.limited), y(b.requests)
		fmt.Fprintf(&allowed, "%.1f,%.1f %.1f,%.1f ", x(i), low, x(i+1), low)
		fmt.Fprintf(&all, "%.1f,%.1f %.1f,%.1f ", x(i), high, x(i+1), high)
		back = append(back, fmt.Sprintf("%.1f,%.1f %.1f,%.1f", x(i+1), low, x(i), low))
	}
	for i := len(back) - 1; i >= 0; i-- {
		all.WriteString(back[i] + " ")
	}
	c.Allowed = fmt.Sprintf("0,%d %s%d,%d", c.Height, allowed.String(), c.Width, c.Height)
	c.Limited = strings.TrimSpace(all.String())
	return c
}
