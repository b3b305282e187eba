package command

import (
	"fmt"
	"slices"
	"strings"
)

// check returns an error that names the first field of a row that is wrong or missing.
func (row *Command) check() error {
	flaw := ""
	switch {
	case row.Name == "" || row.Name != strings.ToLower(row.Name) || len(row.Name) > maxName:
		flaw = fmt.Sprintf("Name: lower case, 1 to %d bytes", maxName)
	case row.Summary == "" || !strings.HasSuffix(row.Summary, "."):
		flaw = "Summary: a sentence, with a full stop"
	case row.Since == "":
		flaw = "Since: the first version that has it"
	case row.Complexity == "":
		flaw = "Complexity: such as O(1)"
	case !slices.ContainsFunc(groups, func(g group) bool { return g.name == row.Group }):
		flaw = "Group: one of the manual's (groups in manual.go)"
	case row.Run == nil && row.Subs == nil:
		flaw = "Run: the code, or Subs: subcommands"
	case row.Run != nil && row.Reply == "":
		flaw = "Reply: the reply in words, for the manual"
	case len(row.Args) > MaxArgs:
		flaw = fmt.Sprintf("Args: no more than %d", MaxArgs)
	case row.Flags&Write != 0 && row.Flags&ReadOnly != 0:
		flaw = "Flags: Write or ReadOnly, not both"
	case row.Flags&Fast != 0 && row.Cost != Constant:
		flaw = "Cost: Constant, as Redis calls it fast"
	default:
		flaw = row.checkArguments()
	}
	if flaw == "" {
		return nil
	}
	return fmt.Errorf("%s: %s", row.Name, flaw)
}

func (row *Command) checkArguments() (flaw string) {
	stage := 0 // required, then optional, then options, then Extra options
	for i, a := range row.Args {
		at := 0
		switch {
		case a.extra:
			at = 3
		case a.Tokens != nil:
			at = 2
		case a.optional:
			at = 1
		}
		if at < stage {
			return "Args: " + a.Name + " follows an argument that must come after it"
		}
		stage = at
		if a.repeats && i != len(row.Args)-1 && row.Args[i+1].Tokens == nil {
			return "Args: " + a.Name + " repeats and is not the last before the options"
		}
		if a.kind == keyArg && row.KeyAccess == "" {
			return "KeyAccess: what it does with its keys, such as RO ACCESS"
		}
	}
	return ""
}

// Words returns how many words a call may have, counting the command's name; most is 0 if there
// is no bound.
func (row *Command) Words() (least, most int) {
	g := newGrammar(row)
	return g.min, g.max
}
