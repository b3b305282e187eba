package command

import (
	"fmt"
	"strings"
)

// usage returns the command's line of usage, for example: CL.THROTTLE key max_burst ... [quantity]
// [PEEK | UPTO | FORCE] [MS].
func (row *Command) usage() string {
	words := []string{row.Upper()}
	for i := range row.Args {
		words = append(words, row.Args[i].usage())
	}
	return strings.Join(words, " ")
}

func (a *Arg) usage() string {
	if strings.ContainsAny(a.Name, "[ ") {
		return a.Name // the name is usage already, such as "[username] password"
	}
	text := a.Name
	switch {
	case a.kind == choiceArg:
		text = strings.Join(a.alternatives(), " | ")
	case a.kind == flagArg:
		text = a.Tokens[0]
	case a.Tokens != nil:
		text = a.Tokens[0] + " " + a.Name
	}
	if a.pairedWith != "" {
		text += " " + a.pairedWith
	}
	if a.second != nil {
		text += " " + a.second.Name
	}
	if a.repeats && a.optional {
		return "[" + text + " ...]"
	}
	if a.repeats {
		text += " [" + text + " ...]"
	}
	if a.optional {
		text = "[" + text + "]"
	}
	return text
}

// alternatives returns the tokens of a choice, each with the name of its operand, if it has one.
func (a *Arg) alternatives() (leads []string) {
	for _, token := range a.Tokens {
		leads = append(leads, strings.TrimRight(token+" "+a.operand, " "))
	}
	return leads
}

// Container returns the row of a command that has only subcommands.
func Container(name, group, since, summary string, subs ...*Command) *Command {
	return &Command{Name: name, Group: group, Category: "none", Since: since, Summary: summary,
		Complexity: "Depends on the subcommand.", Min: 2, AnyMore: true, Subs: subs}
}

// HelpOf returns the row of a container's HELP, which shows the usage and the summary of each of its
// subcommands.
func HelpOf(container, since string) *Command {
	group, category := "server", "none"
	switch container {
	case "client":
		group, category = "connection", "connection"
	case "command":
		category = "connection"
	case "object":
		group, category = "generic", "keyspace"
	case "pubsub":
		group = "pubsub"
	case "function", "script":
		category = "scripting"
	}
	return &Command{
		Name: container + "|help", Group: group, Category: category, Since: since,
		Complexity: "O(1)", Flags: Loading | Stale, Summary: "Lists the subcommands.",
		Reply: "Lines of text.",
		Run: func(c *Call) error {
			parent := c.Row.Parent
			lines := []string{parent.Upper() + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
			for _, sub := range parent.Subs {
				_, words, _ := strings.Cut(sub.usage(), " ")
				lines = append(lines, words, "    "+sub.Summary)
			}
			c.Out.Array(len(lines))
			for _, line := range lines {
				c.Out.Status(line)
			}
			return nil
		},
	}
}

// group is a section of the reference.
type group struct{ name, title string }

// groups are the sections of the reference in their order.
var groups = []group{
	{"limiter", "Limiters"}, {"string", "Values"}, {"generic", "Keys"}, {"transactions", "Transactions"},
	{"pubsub", "Publish and subscribe"}, {"connection", "Connection"}, {"server", "Server"},
	{"cluster", "Refused"},
}

// Reference returns the reference of commands in Markdown: a section for each limiter, and a table for
// each group of Redis's commands.
func Reference(rows []*Command) string {
	var out strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&out, "## %s\n\n", g.title)
		if g.name != "limiter" {
			out.WriteString("| Command | | Reply |\n|---|---|---|\n")
		}
		for _, row := range rows {
			switch {
			case row.Group == "limiter" && g.name == "limiter":
				row.writeSection(&out)
			case row.Group == g.name:
				row.writeLine(&out)
			}
		}
		if g.name != "limiter" {
			out.WriteString("\n")
		}
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// writeSection describes a limiter in a section of its own.
func (row *Command) writeSection(out *strings.Builder) {
	fmt.Fprintf(out, "### %s\n\n    %s\n\n%s %s.\n\n%s\n\n", row.Upper(), row.usage(), row.Summary, complexity(row),
		row.Reply)
}

// writeLine describes one of Redis's commands, and its subcommands, in a line each.
func (row *Command) writeLine(out *strings.Builder) {
	if row.Run != nil {
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", cell(row.usage()), cell(row.Summary), cell(row.Reply))
	}
	for _, sub := range row.Subs {
		if sub.Summary != row.Summary { // otherwise the container's line describes it too
			sub.writeLine(out)
		}
	}
}

func complexity(row *Command) string { return strings.TrimRight(row.Complexity, ".") }

// cell escapes a text for a cell of a table: on one line, with escaped bars.
var cell = strings.NewReplacer("\n", " ", "|", `\|`).Replace
