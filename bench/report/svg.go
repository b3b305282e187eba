package report

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"
)

// Series is one server's values: one for each group of bars, or for each x of a line chart. In a
// line chart, a series of one value is drawn as a point.
type Series struct {
	Name   string
	Values []float64
	Dashed bool // so that a line below it can be seen
}

// barChart has groups of bars, with one bar of each series, and values written on the bars.
type barChart struct {
	title  string
	unit   string // of the values
	log    bool   // the values' axis is logarithmic
	groups []string
	series []Series
}

// LineChart is a picture with a line for each series.
type LineChart struct {
	Title  string
	Unit   string // of the values
	Log    bool   // the values' axis is logarithmic
	Axis   string // the label of the horizontal axis
	X      []float64
	LogX   bool // the horizontal axis is logarithmic, with a label at each x
	Series []Series
}

// The picture, in pixels.
const (
	width, height             = 720, 360
	left, right, top, bottom  = 60, 20, 70, 40
	plotWidth, plotHeight     = width - left - right, height - top - bottom
	legendLine, legendColumns = 18, 3
)

var colors = []string{"#9a3324", "#1f6f8b", "#8a8a8a", "#b58900", "#5b5ea6", "#4b8b3b"}

// canvas is a picture with a vertical axis: from 0 to most, or by powers of ten from least to most.
type canvas struct {
	bytes.Buffer
	least, most float64
	log         bool
}

func newCanvas(title, unit string, log bool, all []Series) *canvas {
	c := &canvas{most: 1e-9, least: math.Inf(1), log: log}
	for _, s := range all {
		for _, v := range s.Values {
			c.most, c.least = max(c.most, v), min(c.least, v)
		}
	}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+
		"\n", width, height)
	fmt.Fprintf(c, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	c.text(left, 20, "start", title)
	for _, v := range c.ticks() {
		y := c.y(v)
		fmt.Fprintf(c, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`+"\n", left, y, width-right, y)
		c.text(left-6, y+4, "end", fmt.Sprintf("%g", math.Round(v*1000)/1000))
	}
	fmt.Fprintf(c, `<text x="14" y="%d" text-anchor="middle" transform="rotate(-90 14 %[1]d)">%s</text>`+"\n",
		top+plotHeight/2, html.EscapeString(unit))
	for i, s := range all {
		x, y := left+i%legendColumns*plotWidth/legendColumns, 32+i/legendColumns*legendLine
		fmt.Fprintf(c, `<rect x="%d" y="%d" width="10" height="10" fill="%s"/>`+"\n", x, y, colors[i%len(colors)])
		c.text(float64(x+14), float64(y+9), "start", s.Name)
	}
	return c
}

// ticks rounds the ends of the axis, and returns the numbers to write at the axis.
func (c *canvas) ticks() (ticks []float64) {
	if c.log {
		c.least, c.most = math.Pow(10, math.Floor(math.Log10(c.least))), math.Pow(10, math.Ceil(math.Log10(c.most)))
		for v := c.least; v <= c.most*1.001; v *= 10 {
			ticks = append(ticks, v)
		}
		return ticks
	}
	step := niceStep(c.most / 4)
	c.most = step * math.Ceil(c.most/step)
	for v := 0.0; v <= c.most*1.001; v += step {
		ticks = append(ticks, v)
	}
	return ticks
}

// niceStep returns the smallest of 1, 2 and 5 times a power of ten that is not below x.
func niceStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= x {
			return n * power
		}
	}
	return 10 * power
}

func (c *canvas) y(value float64) float64 {
	share := value / c.most
	if c.log {
		share = math.Log(value/c.least) / math.Log(c.most/c.least)
	}
	return top + plotHeight*(1-share)
}

func (c *canvas) text(x, y float64, anchor, words string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(words))
}

// label formats a value with about three digits, and never with an exponent.
func label(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func (c *canvas) done() []byte {
	c.WriteString("</svg>\n")
	return c.Bytes()
}

// svg returns the picture, or nil if there are no groups.
func (b barChart) svg() []byte {
	if len(b.groups) == 0 {
		return nil
	}
	c := newCanvas(b.title, b.unit, b.log, b.series)
	space := float64(plotWidth) / float64(len(b.groups))
	bar := space * 0.8 / float64(len(b.series))
	for i, group := range b.groups {
		x := left + space*(float64(i)+0.1)
		for j, s := range b.series {
			y := c.y(s.Values[i])
			fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n",
				x+bar*float64(j), y, bar*0.95, top+plotHeight-y, colors[j%len(colors)])
			c.text(x+bar*(float64(j)+0.5), y-3, "middle", label(s.Values[i]))
		}
		c.text(x+space*0.4, height-bottom+16, "middle", group)
	}
	return c.done()
}

// SVG draws the chart.
func (l LineChart) SVG() []byte {
	c := newCanvas(l.Title, l.Unit, l.Log, l.Series)
	for i, s := range l.Series {
		color := colors[i%len(colors)]
		if len(s.Values) == 1 {
			fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`+"\n", l.at(l.X[0]), c.y(s.Values[0]), color)
			continue
		}
		var points strings.Builder
		for j, v := range s.Values {
			fmt.Fprintf(&points, "%.1f,%.1f ", l.at(l.X[j]), c.y(v))
		}
		dash := ""
		if s.Dashed {
			dash = ` stroke-dasharray="6 4"`
		}
		fmt.Fprintf(c, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n",
			strings.TrimSpace(points.String()), color, dash)
	}
	for _, x := range l.labels() {
		c.text(l.at(x), height-bottom+16, "middle", fmt.Sprintf("%g", x))
	}
	c.text(left+plotWidth/2, height-bottom+34, "middle", l.Axis)
	return c.done()
}

// at returns the place of a value on the horizontal axis.
func (l LineChart) at(x float64) float64 {
	first, last := l.X[0], l.X[len(l.X)-1]
	if l.LogX {
		x, first, last = math.Log(x), math.Log(first), math.Log(last)
	}
	return left + plotWidth*(x-first)/max(last-first, 1e-9)
}

// labels returns the values at which the horizontal axis has a label.
func (l LineChart) labels() (at []float64) {
	if l.LogX {
		return l.X
	}
	first, last := l.X[0], l.X[len(l.X)-1]
	for x := math.Ceil(first); x <= last; x += niceStep((last - first) / 10) {
		at = append(at, x)
	}
	return at
}
