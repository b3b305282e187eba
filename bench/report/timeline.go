package report

import (
	"fmt"
	"strings"
)

// Timeline is a picture of values and events over some seconds.
type Timeline struct {
	Title   string
	Unit    string // of the vertical axis
	Seconds float64
	Most    float64 // the vertical axis reaches at least this far, so that pictures can be compared
	Phases  []Phase
	Tracks  []Track
}

// Phase is a named part of a timeline. It ends where the next one begins.
type Phase struct {
	Name string
	From float64 // s
}

// Track is a value that changes at instants, single events, or both, in one color.
type Track struct {
	Name   string
	Steps  []Step
	Dashed bool      // so that a line below it can be seen
	Marks  []float64 // s: one stroke each, below the axis
}

// Step is a value from an instant on.
type Step struct{ At, Value float64 } // At in s

// The place, in pixels, of the marks of the first track with marks. The next track's marks are a
// lane below.
const marksTop, markHeight, markLane = height - bottom + 21, 6, 8

// SVG draws the timeline.
func (t Timeline) SVG() []byte {
	all := make([]Series, len(t.Tracks))
	for i, track := range t.Tracks {
		all[i] = Series{Name: track.Name, Values: []float64{t.Most}}
		for _, s := range track.Steps {
			all[i].Values = append(all[i].Values, s.Value)
		}
	}
	c := newCanvas(t.Title, t.Unit, false, all)
	at := func(seconds float64) float64 { return left + plotWidth*seconds/t.Seconds }
	for _, p := range t.Phases {
		fmt.Fprintf(c, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>`+"\n", at(p.From), top, at(p.From),
			height-bottom)
		c.text(at(p.From)+3, top+12, "start", p.Name)
	}
	lane := marksTop
	for i, track := range t.Tracks {
		color := colors[i%len(colors)]
		if len(track.Steps) > 0 {
			dashes := ""
			if track.Dashed {
				dashes = ` stroke-dasharray="4 3"`
			}
			fmt.Fprintf(c, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"%s/>`+"\n", t.stairs(c, track.Steps, at),
				color, dashes)
		}
		if len(track.Marks) > 0 {
			var strokes strings.Builder
			for _, m := range track.Marks {
				fmt.Fprintf(&strokes, "M%.1f %dv%d", at(m), lane, markHeight)
			}
			fmt.Fprintf(c, `<path d="%s" stroke="%s"/>`+"\n", strokes.String(), color)
			lane += markLane
		}
	}
	for i := range 5 {
		seconds := t.Seconds * float64(i) / 4
		c.text(at(seconds), height-bottom+16, "middle", fmt.Sprintf("%.3g s", seconds))
	}
	return c.done()
}

// stairs returns the path of a line that keeps its height until the next step.
func (t Timeline) stairs(c *canvas, steps []Step, at func(float64) float64) string {
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", at(steps[0].At), c.y(steps[0].Value))
	for _, s := range steps[1:] {
		fmt.Fprintf(&path, "H%.1fV%.1f", at(s.At), c.y(s.Value))
	}
	fmt.Fprintf(&path, "H%.1f", at(t.Seconds))
	return path.String()
}
