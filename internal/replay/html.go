package replay

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

// pageTemplate is the page; what it shows is escaped by html/template, because subjects are chosen by clients.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": number, "percent": percent, "duration": duration,
	"at":     func(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") },
	"part":   func(p *float64) string { return fmt.Sprintf("%.0f %%", 100**p) },
	"factor": func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) },
}).Parse(pageText))

// page writes the report as a page that loads nothing else.
func (r *Report) page(out io.Writer) error {
	return pageTemplate.Execute(out, struct {
		*Report
		Chart chart
	}{r, r.chart()})
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
