package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every rule finds a planted breach, and accepts similar code that is allowed.

type planted struct {
	name  string
	check func(t *tree) []string
	files []string // names and texts by turns
	want  []string // none: innocent
}

func (p planted) run(t *testing.T) {
	assert.Equal(t, p.want, p.check(plant(t, p.files...)))
}

func runAll(t *testing.T, cases []planted) {
	for _, c := range cases {
		t.Run(c.name, c.run)
	}
}

func TestImportBreaches(t *testing.T) {
	runAll(t, []planted{
		{"upwards", importsFollowPolicy,
			[]string{"internal/gcra/a.go", "package gcra\n\nimport \"cellserver/internal/store\"\n"},
			[]string{"internal/gcra/a.go:3: internal/gcra may not import internal/store"}},
		{"somebody else's", importsFollowPolicy,
			[]string{"internal/window/a.go", "package window\n\nimport _ \"golang.org/x/sys/unix\"\n"},
			[]string{"internal/window/a.go:3: internal/window may not import golang.org/x/sys/unix"}},
		{"cgo", importsFollowPolicy,
			[]string{"internal/store/a.go", "package store\n\nimport \"C\"\n"},
			[]string{"internal/store/a.go:3: internal/store may not import C"}},
		{"no line", importsFollowPolicy,
			[]string{"internal/new/a.go", "package new\n"},
			[]string{"internal/new/a.go:1: internal/new has no import policy: give it a line"}},
		{"allowed", importsFollowPolicy,
			[]string{"internal/server/a.go",
				"package server\n\nimport (\n\t\"net/http\"\n\n\t\"cellserver/internal/resp\"\n\n" +
					"\t\"golang.org/x/sys/unix\"\n)\n"},
			nil},
		{"tests are free", importsFollowPolicy,
			[]string{"internal/gcra/a_test.go", "package gcra\n\nimport \"cellserver/internal/store\"\n",
				"bench/a.go", "package bench\n\nimport \"cellserver/internal/store\"\n"},
			nil},
		{"chooses a store", onlyMainChoosesStore,
			[]string{"internal/commands/a.go",
				"package commands\n\nimport m \"cellserver/internal/store/memory\"\n\nvar a = m.New()\n"},
			[]string{"internal/commands/a.go:5: memory.New: only cmd/cellserver chooses a store"}},
		{"storetest is given one", onlyMainChoosesStore,
			[]string{"internal/store/storetest/a.go",
				"package storetest\n\nimport \"cellserver/internal/store/remote\"\n\nvar a = remote.NewOn\n"},
			[]string{"internal/store/storetest/a.go:5: remote.NewOn: only cmd/cellserver chooses a store"}},
		{"main chooses", onlyMainChoosesStore,
			[]string{"cmd/cellserver/main.go",
				"package main\n\nimport \"cellserver/internal/store/memory\"\n\nvar a = memory.New()\n"},
			nil},
	})
}

func TestSizeBreaches(t *testing.T) {
	body := strings.Repeat("\t_ = 0\n", maxLines-1)
	fields := "package a\n\ntype wide struct {\n\ta, b int\n\tm\n" + strings.Repeat("\t_ int\n", maxFields-2) + "}\n"
	nine := "package a\n" + strings.Repeat("// a\n", 8)
	runAll(t, []planted{
		{"long function", functionsAreShort(nil),
			[]string{"cmd/a.go", "package a\n\n// f is long.\nfunc (a *A) f() {\n" + body + "}\n"},
			[]string{"cmd A.f: 51 lines, and 50 is the most"}},
		{"long literal", functionsAreShort(nil),
			[]string{"cmd/a.go", "package a\n\nvar f = func() {\n" + body + "}\n"},
			[]string{"cmd, a literal: 51 lines, and 50 is the most"}},
		{"long test", functionsAreShort(nil),
			[]string{"a_test.go", "package a\n\nfunc f() {\n" + body + "}\n"},
			[]string{". f: 51 lines, and 50 is the most"}},
		{"long function of another module", functionsAreShort(nil),
			[]string{"test/clients/go/go.mod", "module clients\n",
				"test/clients/go/a/main.go", "package main\n\nfunc main() {\n" + body + "}\n"},
			[]string{"test/clients/go/a main: 51 lines, and 50 is the most"}},
		{"functions of just the length", functionsAreShort(nil),
			[]string{"cmd/a.go", "package a\n\nfunc f() {\n" + body[len("\t_ = 0\n"):] + "}\n",
				"a_test.go", "package a\n\nfunc f() {\n" + body[len("\t_ = 0\n"):] + "}\n"},
			nil},
		{"long file", filesAreShort(nil),
			[]string{"cmd/a.go", "package a\n" + strings.Repeat("// a\n", maxFileLines),
				"cmd/b.go", "package a\n" + strings.Repeat("// a\n", maxFileLines-1),
				"cmd/a_test.go", "package a\n" + strings.Repeat("// a\n", maxFileLines)},
			[]string{"cmd/a.go: 501 lines, and 500 is the most"}},
		{"wide struct", structsAreSmall(nil),
			[]string{"cmd/a.go", fields, "cmd/b.go", strings.NewReplacer("a, b", "a", "wide", "fits").Replace(fields),
				"cmd/a_test.go", fields},
			[]string{"cmd wide: 26 fields, and 25 is the most"}},
		{"large package", noPackageIsMost(nil),
			[]string{"internal/a/a.go", nine, "internal/b/a.go", nine, "internal/c/a.go", nine, "internal/d/a.go", nine,
				"internal/e/a.go", nine + "\n", "test/a.go", nine, "internal/a/a_test.go", nine},
			[]string{"internal/e: 22 percent of the product, and 20 is the most"}},
		{"ceilings", filesAreShort(ceilings{"cmd/a.go": 505, "cmd/b.go": 505, "cmd/c.go": 501, "cmd/d.go": 505}),
			[]string{"cmd/a.go", "package a\n" + strings.Repeat("// a\n", 505), "cmd/b.go",
				"package a\n" + strings.Repeat("// a\n", 504),
				"cmd/c.go", "package a\n"},
			[]string{"cmd/a.go: 506 lines: it has grown from 505, and was too large already",
				"cmd/c.go: 1 lines: drop its ceiling", "cmd/d.go: 0 lines: drop its ceiling"}},
	})
}

func TestStyleBreaches(t *testing.T) {
	methods := ""
	for i := range maxMethods {
		methods += fmt.Sprintf("\tM%d()\n", i)
	}
	runAll(t, []planted{
		{"large interface", interfacesAreSmall,
			[]string{"a_test.go", "package a\n\ntype a interface {\n\tb\n" + methods + "\tLast()\n}\n"},
			[]string{"a_test.go:3: an interface of 13 methods"}},
		{"interface of just the size, and a large one in pieces", interfacesAreSmall,
			[]string{"a.go", "package a\n\ntype a interface {\n" + methods + "}\n\ntype b interface {\n\ta\n\tB()\n}\n"},
			nil},
		{"init", noInit,
			[]string{"a.go", "package a\n\nfunc init() {}\n\nfunc (a) init() {}\n"},
			[]string{"a.go:3: func init"}},
		{"a long line", linesFit,
			[]string{"internal/a/a.go", "package a\n\n//" + strings.Repeat(" word", 30) + "\nvar a = 1\n"},
			[]string{"internal/a/a.go:3: 152 columns, and 120 is the most"}},
		{"a long string", linesFit,
			[]string{"internal/a/a.go", "package a\n\nconst text = \"" + strings.Repeat("word ", 30) + "\"\n"}, nil},
		{"spaces for a tab", isFormatted,
			[]string{"a.go", "package a\n\nfunc f() {\n    f()\n}\n", "testdata/b.go", "package  b\n"},
			[]string{"a.go:1: not formatted by gofmt"}},
		{"empty words", namesSaySomething,
			[]string{"internal/utils/data_file.go",
				"package common\n\ntype KeyManager int\n\ntype dataOK int\n\ntype (\n\tA      int\n\tHTTPHelper int\n)\n"},
			[]string{
				`internal/utils/data_file.go:1: package common: "common" says nothing`,
				`internal/utils/data_file.go:1: file internal/utils/data_file: "utils" says nothing`,
				`internal/utils/data_file.go:1: file internal/utils/data_file: "data" says nothing`,
				`internal/utils/data_file.go:3: type KeyManager: "manager" says nothing`,
				`internal/utils/data_file.go:9: type HTTPHelper: "helper" says nothing`,
			}},
		{"words that only contain one", namesSaySomething,
			[]string{"testdata/a.txt", "", "database.go", "package database\n\ntype Serviceable int\n"},
			nil},
		{"no introduction", packagesIntroduceThemselves,
			[]string{"a/a.go", "// a.go\n\npackage a\n", "a/a_test.go", "// Package a in a test.\npackage a\n",
				"b/b_test.go", "//go:build linux\n\npackage b\n", "b/x_test.go", "package b_test\n"},
			[]string{"a/a.go:3: package a has no comment", "b/b_test.go:3: package b has no comment"}},
		{"introductions", packagesIntroduceThemselves,
			[]string{"a/a.go", "// Package a is one.\npackage a\n", "a/b.go", "package a\n", "a/a_test.go", "package a_test\n",
				"b/a_test.go", "package b\n", "b/b_test.go", "// Package b is tests only.\npackage b\n"},
			nil},
	})
}

func TestClockBreaches(t *testing.T) {
	reads := "package a\n\nimport clock \"time\"\n\nvar a, b = clock.Now(), clock.Since\n"
	runAll(t, []planted{
		{"time", onlyTheStoreReadsClock,
			[]string{"internal/gcra/a.go", reads},
			[]string{
				"internal/gcra/a.go:5: time.Now outside of internal/store/clock.go",
				"internal/gcra/a.go:5: time.Since outside of internal/store/clock.go",
			}},
		{"unix", onlyTheStoreReadsClock,
			[]string{"cmd/cellserver/a.go",
				"package a\n\nimport \"golang.org/x/sys/unix\"\n\nvar a = unix.ClockGettime\n"},
			[]string{"cmd/cellserver/a.go:5: golang.org/x/sys/unix.ClockGettime outside of internal/store/clock.go"}},
		{"without a name", onlyTheStoreReadsClock,
			[]string{"internal/store/a.go", "package a\n\nimport . \"time\"\n\nvar a = Now()\n"},
			[]string{`internal/store/a.go:1: import . "time" hides who reads the clock`}},
		{"linked", onlyTheStoreReadsClock,
			[]string{"internal/store/a.go",
				"package a\n\nimport _ \"unsafe\"\n\n//go:linkname now runtime.nanotime\nfunc now() int64\n"},
			[]string{"internal/store/a.go:5: runtime.nanotime outside of internal/store/clock.go"}},
		{"the clock, tests and what is not the server", onlyTheStoreReadsClock,
			[]string{theClock, reads, "internal/gcra/a_test.go", reads, "test/a/a.go", reads, "bench/a.go", reads,
				"internal/gcra/b.go", "package a\n\nimport \"time\"\n\nvar a = time.Second\n"},
			nil},
	})
}

func TestForeignWords(t *testing.T) {
	for _, word := range foreign {
		found := standsAlone(plant(t, ".github/ci.yml", "a\nb "+word+"x\n", "bin/server", "\xff"+word))
		require.Len(t, found, 1)
		assert.Equal(t, ".github/ci.yml:2: names "+word, found[0])
	}
	assert.Empty(t, standsAlone(plant(t, "README.md", "a framework, or a homepage\n")))
}

func TestCodeMapBreaches(t *testing.T) {
	text := "# Map\n\n    internal/resp/   reader.go\n- `internal/gone` was here\n| cmd/cellserver/ | main |\n" +
		"    bench/\ntest words are words\ninternal/resp, again\n"
	runAll(t, []planted{
		{"gone", codeMapIsTrue,
			[]string{architecture, text, "internal/resp/a.go", "package resp\n", "cmd/cellserver/main.go", "package main\n"},
			[]string{
				"ARCHITECTURE.md:4: lists internal/gone, which does not exist",
				"ARCHITECTURE.md:6: lists bench, which does not exist",
			}},
	})
}

func TestExcuses(t *testing.T) {
	skips := "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {\n\tt.Skip(\"slow\")\n}\n\n" +
		"func TestB(t *testing.T) {\n\tt.SkipNow()\n}\n"
	sleeps := "package a\n\nimport clock \"time\"\n\nfunc f() {\n\tclock.Sleep(1)\n}\n"
	runAll(t, []planted{
		{"skips", testsDoNotSkip(excuses{"a_test.go TestA": "needs a redis-server"}),
			[]string{"a_test.go", skips},
			[]string{"a_test.go:10: skips without an excuse"}},
		{"skips for no reason", testsDoNotSkip(excuses{"a.go TestA": "", "a.go TestB": "needs a redis-server"}),
			[]string{"a.go", skips},
			[]string{"a.go:6: skips without an excuse"}},
		{"an excuse too many", testsDoNotSkip(excuses{"a_test.go TestC": "was slow"}),
			nil,
			[]string{"a_test.go TestC: no longer skips: drop its excuse"}},
		{"sleeps", testsDoNotSleep(nil),
			[]string{"a_test.go", sleeps, "internal/server/a.go", sleeps},
			[]string{"a_test.go:6: sleeps without an excuse"}},
		{"sleeps for a reason", testsDoNotSleep(excuses{"a_test.go f": "waits for a real clock"}),
			[]string{"a_test.go", sleeps},
			nil},
	})
}
