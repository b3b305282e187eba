package rules

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// replaced are words of the project's own for which the field, or plain English, has another, which
// is used in their place in comments and in names.
var replaced = map[string]string{
	"hush": "reply mode", "spoil": "abort", "foresee": "prefetch", "outlet": "output buffer", "bell": "wake descriptor",
	"strangers": "unauthenticated clients", "unhurried": "bounded cost", "hearsay": "channels", "victims": "kill filter",
	"takings": "limit requests", "hitters": "top-k", "lapse": "expire", "outlived": "reclaim", "lapses": "expires",
	"lapsed": "expired", "foreseen": "prefetched", "foresees": "prefetches", "hitter": "key count",
	"unswept": "not removed yet", "strayed": "error",
}

// idioms are words and phrases of plain English for which there is a clearer one.
var idioms = map[string]string{
	"who": "a client, user or goroutine that", "whoever": "a client, user or goroutine that",
	"nobody":   "no client, no reader",
	"somebody": "a client, another goroutine", "beside": "compared with, outside, next to", "anew": "again",
	"dear":    "expensive",
	"himself": "itself", "everybody": "all clients", "unheard": "unsent", "careful": "slow path",
	"anyone": "any client", "aloud": "whatever CLIENT REPLY says", "heed": "apply",
	"heeded": "wanted", "heeds": "applies",
	"anybody": "any client", "everyone": "all clients", "someone": "a client, another goroutine",
	"newcomer": "unauthenticated connection", "newcomers": "unauthenticated connections",
	"hear": "receive", "hears": "receives", "goodbye": "closing alert, quit", "parting": "lingering connection",
}

// replacedNames are words that comments may use, and names may not, because the field has another
// word.
var replacedNames = map[string]string{
	"worth": "cost", "forbid": "authorize", "guarded": "authorize", "hearing": "subscription",
	"narrow": "kill filter", "sealed": "TLS connection", "spikes": "latency events", "spot": "index position",
	"happened": "onEvents", "concerns": "hooks", "lasts": "blocks", "waits": "blocked clients",
}

// saysTheFieldsWord looks at the names and the comments of all Go files.
func saysTheFieldsWord(t *tree) (breaches []string) {
	inComments := []map[string]string{replaced, idioms}
	inNames := []map[string]string{replaced, idioms, replacedNames}
	for _, f := range t.files {
		breaches = append(breaches, wordBreaches(t, f, inComments, inNames)...)
	}
	return breaches
}

func wordBreaches(t *tree, f *source, inComments, inNames []map[string]string) (breaches []string) {
	judge := func(node ast.Node, words []string, lists []map[string]string) {
		for _, word := range words {
			for _, list := range lists {
				if better := list[word]; better != "" {
					breaches = append(breaches, t.at(node, "%s: rather %s", word, better))
				}
			}
		}
	}
	ast.Inspect(f.syntax, func(node ast.Node) bool {
		if name, ok := node.(*ast.Ident); ok {
			judge(name, splitName(name.Name), inNames)
		}
		return true
	})
	for _, group := range f.syntax.Comments {
		for _, line := range group.List {
			judge(line, wordsOf(line.Text), inComments)
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
	read := saysTheFieldsWord
	runAll(t, []planted{
		{"in a name", read, []string{file, "package a\n\nfunc spoilAll() {}\n"},
			[]string{"internal/a/a.go:3: spoil: rather abort"}},
		{"in a comment", read, []string{file, "package a\n\n// The keys lapse.\nvar keys int\n"},
			[]string{"internal/a/a.go:3: lapse: rather expire"}},
		{"in a message", read, []string{file, "package a\n\nconst message = \"they lapse\"\n"}, nil},
		{"a part of a word", read, []string{file, "package a\n\n// Labels are elapsed times.\nvar label int\n"}, nil},
		{"an idiom", read, []string{file, "package a\n\n// All keys,\n// made anew.\nvar keys int\n"},
			[]string{"internal/a/a.go:4: anew: rather again"}},
		{"in names alone", read, []string{file, "package a\n\n// It is worth a word.\nvar keyWorth int\n"},
			[]string{"internal/a/a.go:4: worth: rather cost"}},
	})
}
