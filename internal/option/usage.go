package option

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Usage returns the options for --help by their groups, in lines of at most width columns.
func (l *List) Usage(width int) string {
	var out strings.Builder
	for i, group := range l.groups() {
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "%s:\n", group)
		for _, o := range l.options {
			if o.Group != group || o.IsFixed() {
				continue
			}
			o.describe(&out, width)
		}
	}
	return out.String()
}

// UsageOf describes the options whose name and help have all of some words.
func (l *List) UsageOf(words []string, width int) string {
	var out strings.Builder
	for _, o := range l.options {
		if !o.IsFixed() && HasWords(o.Name, o.Help, words) {
			o.describe(&out, width)
		}
	}
	return out.String()
}

// HasWords reports whether each of some words is in a name, or begins a word of a text, whatever their case.
// A word may be the name of an option.
func HasWords(name, text string, words []string) bool {
	text = strings.ToLower(text)
	for _, word := range words {
		word = strings.ToLower(strings.TrimPrefix(word, "--"))
		if !strings.Contains(name, word) && !hasBeginning(text, word) {
			return false
		}
	}
	return true
}

// hasBeginning reports whether a word of a text begins so.
func hasBeginning(text, beginning string) bool {
	for at := range text {
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		if strings.HasPrefix(text[at:], beginning) && !unicode.IsLetter(before) && !unicode.IsDigit(before) {
			return true
		}
	}
	return false
}

// describe appends the lines about an option to --help.
func (o *Option) describe(out *strings.Builder, width int) {
	const indent = 8
	fmt.Fprintf(out, "  --%s %s\n", o.Name, o.Kind.Type())
	wrap(out, o.Help+o.bounds(), indent, width)
}

// IsFixed reports whether an option is of kind Fixed or Inert, and so has no flag.
func (o *Option) IsFixed() bool {
	switch o.Kind.(type) {
	case fixed, inert:
		return true
	}
	return false
}

// bounds describes the range of an option's values, unless the type lists them, and the default.
func (o *Option) bounds() string {
	var parts []string
	if r := o.Kind.Range(); r != "" && !strings.Contains(o.Kind.Type(), "|") {
		parts = append(parts, r)
	}
	if o.defaultValue != "" && !o.Secret {
		parts = append(parts, "default "+o.defaultValue)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// groups returns the groups of the options, in the order in which they first occur.
func (l *List) groups() (groups []string) {
	for _, o := range l.options {
		if !slices.Contains(groups, o.Group) {
			groups = append(groups, o.Group)
		}
	}
	return groups
}

// wrap writes a text in lines from column indent to column width.
func wrap(out *strings.Builder, text string, indent, width int) {
	column := 0
	for _, word := range strings.Fields(text) {
		if column > 0 && column+1+len(word) > width {
			out.WriteString("\n")
			column = 0
		}
		if column == 0 {
			out.WriteString(strings.Repeat(" ", indent))
			column = indent
		} else {
			out.WriteString(" ")
			column++
		}
		out.WriteString(word)
		column += len(word)
	}
	out.WriteString("\n")
}

// Markdown returns the options for the documentation, with a table for each group.
func (l *List) Markdown(prefix string) string {
	var out strings.Builder
	for i, group := range l.groups() {
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "## %s\n\n| Option | Values | Default | `CONFIG SET` | |\n|---|---|---|---|---|\n", group)
		for _, o := range l.options {
			if o.Group == group && !o.IsFixed() {
				fmt.Fprintf(&out, "| `--%s`<br>`%s` | %s | %s | %s | %s |\n", o.Name, EnvironmentName(prefix, o.Name),
					escapeCell(o.values()), code(o.shownDefault()), o.changeable(), escapeCell(o.explained()))
			}
		}
	}
	return out.String()
}

func (o *Option) values() string {
	if r := o.Kind.Range(); r != "" {
		return r
	}
	return o.Kind.Type()
}

func (o *Option) shownDefault() string {
	if o.Secret {
		return ""
	}
	return o.defaultValue
}

// changeable describes whether CONFIG SET changes an option.
func (o *Option) changeable() string {
	switch {
	case o.FlagOnly:
		return "not shown"
	case o.Change != Live:
		return "no"
	case o.Protected:
		return "protected"
	}
	return "yes"
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + escapeCell(text) + "`"
}

// escapeCell escapes the bars in a text, which would end the cell of a table.
func escapeCell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
