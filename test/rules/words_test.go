package rules

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// replaced are words of the project's own for which the field has one, which is used in their place.
var replaced = map[string]string{
	"hush": "reply mode", "spoil": "abort", "foresee": "prefetch", "outlet": "output buffer", "bell": "wake descriptor",
	"strangers": "unauthenticated clients", "unhurried": "bounded cost", "hearsay": "channels", "victims": "kill filter",
	"takings": "limit requests", "hitters": "top-k", "lapse": "expire", "outlived": "reclaim",
}

// saysTheFieldsWord looks at the names and the comments of the product.
func saysTheFieldsWord(t *tree) (breaches []string) {
	for _, f := range t.product() {
		judge := func(node ast.Node, words []string) {
			for _, word := range words {
				if better := replaced[word]; better != "" {
					breaches = append(breaches, t.at(node, "%s: the field says %s", word, better))
				}
			}
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			if name, ok := node.(*ast.Ident); ok {
				judge(name, splitName(name.Name))
			}
			return true
		})
		for _, group := range f.syntax.Comments {
			judge(group, wordsOf(group.Text()))
		}
	}
	return breaches
}

// wordsOf are the words of a text, each once, in lower case.
func wordsOf(text string) []string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r < 'a' || r > 'z' })
	slices.Sort(words)
	return slices.Compact(words)
}

func TestWordBreaches(t *testing.T) {
	const file = "internal/a/a.go"
	runAll(t, []planted{
		{"in a name", saysTheFieldsWord, []string{file, "package a\n\nfunc spoilAll() {}\n"},
			[]string{"internal/a/a.go:3: spoil: the field says abort"}},
		{"in a comment", saysTheFieldsWord, []string{file, "package a\n\n// The keys lapse.\nvar keys int\n"},
			[]string{"internal/a/a.go:3: lapse: the field says expire"}},
		{"in a message", saysTheFieldsWord, []string{file, "package a\n\nconst message = \"they lapse\"\n"}, nil},
		{"a part of a word", saysTheFieldsWord, []string{file, "package a\n\n// Labels are elapsed times.\nvar label int\n"}, nil},
	})
}
