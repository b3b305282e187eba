package command

import (
	"fmt"
	"strings"
)

// InfoPart is the part of a section of INFO that a family writes. Parts of one section follow one
// another in the order of the families.
type InfoPart struct {
	Section string
	Write   func(c *Call, out *InfoText)
}

// InfoText is the text of a section: lines of name:value. Names are Redis's where Redis has the
// field.
type InfoText struct{ strings.Builder }

// Add writes a field.
func (t *InfoText) Add(name string, value any) { fmt.Fprintf(t, "%s:%v\r\n", name, value) }

// Bool writes a field that is 1 or 0.
func (t *InfoText) Bool(name string, value bool) {
	n := 0
	if value {
		n = 1
	}
	t.Add(name, n)
}

// Fixed writes fields, each as name:value, whose values never change.
func (t *InfoText) Fixed(lines ...string) {
	for _, line := range lines {
		t.WriteString(line + "\r\n")
	}
}

// Bytes writes a number of bytes in two fields, as Redis does: the number, and a short text.
func (t *InfoText) Bytes(name string, bytes int64) {
	t.Add(name, bytes)
	t.Add(name+"_human", humanBytes(bytes))
}

// humanBytes returns a number of bytes as Redis shows it in fields whose names end with _human.
func humanBytes(bytes int64) string {
	value, unit := float64(bytes), 0
	for value >= 1024 && unit < 5 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%dB", bytes)
	}
	return fmt.Sprintf("%.2f%c", value, "BKMGTP"[unit])
}
