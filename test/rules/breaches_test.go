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
	files []string // alternating names and texts
	want  []string // empty if the code is innocent
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
	body := strings.Repeat("\t_ = 0\n", functionLines.most-1)
	fields := "package a\n\ntype wide struct {\n\ta, b int\n\tm\n" + strings.Repeat("\t_ int\n", structFields.most-2) + "}\n"
	nine := "package a\n" + strings.Repeat("// a\n", 8)
	runAll(t, []planted{
		{"long function", functionLines.check(nil),
			[]string{"cmd/a.go", "package a\n\n// f is long.\nfunc (a *A) f() {\n" + body + "}\n"},
			[]string{"cmd A.f: 51 lines, and 50 is the most"}},
		{"long literal", functionLines.check(nil),
			[]string{"cmd/a.go", "package a\n\nvar f = func() {\n" + body + "}\n"},
			[]string{"cmd, a literal: 51 lines, and 50 is the most"}},
		{"long test", functionLines.check(nil),
			[]string{"a_test.go", "package a\n\nfunc f() {\n" + body + "}\n"},
			[]string{". f: 51 lines, and 50 is the most"}},
		{"long function of another module", functionLines.check(nil),
			[]string{"test/clients/go/go.mod", "module clients\n",
				"test/clients/go/a/main.go", "package main\n\nfunc main() {\n" + body + "}\n"},
			[]string{"test/clients/go/a main: 51 lines, and 50 is the most"}},
		{"functions of just the length", functionLines.check(nil),
			[]string{"cmd/a.go", "package a\n\nfunc f() {\n" + body[len("\t_ = 0\n"):] + "}\n",
				"a_test.go", "package a\n\nfunc f() {\n" + body[len("\t_ = 0\n"):] + "}\n"},
			nil},
		{"long file", fileLines.check(nil),
			[]string{"cmd/a.go", "package a\n" + strings.Repeat("// a\n", fileLines.most),
				"cmd/b.go", "package a\n" + strings.Repeat("// a\n", fileLines.most-1),
				"cmd/a_test.go", "package a\n" + strings.Repeat("// a\n", fileLines.most)},
			[]string{"cmd/a.go: 501 lines, and 500 is the most"}},
		{"wide struct", structFields.check(nil),
			[]string{"cmd/a.go", fields, "cmd/b.go", strings.NewReplacer("a, b", "a", "wide", "fits").Replace(fields),
				"cmd/a_test.go", strings.Replace(fields, "wide", "tested", 1)},
			[]string{"cmd wide: 26 fields, and 25 is the most"}},
		{"large package", packageShare.check(nil),
			[]string{"internal/a/a.go", nine, "internal/b/a.go", nine, "internal/c/a.go", nine, "internal/d/a.go", nine,
				"internal/e/a.go", nine + "\n", "test/a.go", nine, "internal/a/a_test.go", nine},
			[]string{"internal/e: 22 percent of the product, and 20 is the most"}},
	})
}

func TestCeilings(t *testing.T) {
	long := func(lines int) string { return "package a\n" + strings.Repeat("// a\n", lines-1) }
	ceilings := ceilings{{"lines", "cmd/a.go", 505, "a"}, {"lines", "cmd/b.go", 505, "b"}, {"lines", "cmd/c.go", 501, "c"},
		{"lines", "cmd/d.go", 505, "d"}, {"lines", "cmd/e.go", 505, "e"}, {"lines", "cmd/f.go", 505, ""},
		{"fields", "cmd/g.go", 505, "of another rule"}}
	runAll(t, []planted{
		{"ceilings", fileLines.check(ceilings),
			[]string{"cmd/a.go", long(506), "cmd/b.go", long(505), "cmd/c.go", long(1), "cmd/e.go", long(504),
				"cmd/f.go", long(505), "cmd/g.go", long(505)},
			[]string{"cmd/a.go: 506 lines: it has grown from 505, and was too large already",
				"cmd/c.go: 1 lines: drop its ceiling", "cmd/d.go: 0 lines: drop its ceiling",
				"cmd/e.go: 504 lines: lower its ceiling from 505", "cmd/f.go: 505 lines without a reason",
				"cmd/g.go: 505 lines, and 500 is the most"}},
	})
}

// A type that embeds others is as large as all of them together.
func TestSizesThroughEmbedding(t *testing.T) {
	inner := []string{"internal/b/b.go", "package b\n\ntype T struct {\n\tdeep\n" + strings.Repeat("\tX int\n", 19) + "\thidden int\n}\n\n" +
		"type deep struct {\n" + strings.Repeat("\tX bool\n", 5) + "}\n\ntype I interface {\n\tA()\n\tB()\n}\n"}
	head := "package a\n\nimport (\n\t\"io\"\n\n\t\"cellserver/internal/b\"\n)\n\n"
	methods := ""
	for i := range interfaceMethods.most - 2 {
		methods += fmt.Sprintf("\tM%d()\n", i)
	}
	runAll(t, []planted{
		{"struct", structFields.check(nil),
			append(inner, "cmd/a.go", head+"type wide struct {\n\tb.T\n\tio.Reader\n\tx int\n}\n\n"+
				"type fits struct {\n\tb.T\n\tt b.T\n}\n"),
			[]string{"cmd wide: 26 fields, and 25 is the most"}},
		{"pointer", structFields.check(nil),
			append(inner, "cmd/a.go", head+"type wide struct {\n\t*b.T\n\tb.I\n\tx int\n}\n"),
			[]string{"cmd wide: 26 fields, and 25 is the most"}},
		{"booleans", structBooleans.check(nil),
			append(inner, "cmd/a.go", head+"type wide struct {\n\tb.T\n\tx, y bool\n}\n\ntype fits struct {\n\tb.T\n\tx bool\n}\n"),
			[]string{"cmd wide: 7 booleans, and 6 is the most"}},
		{"interface", interfaceMethods.check(nil),
			append(inner, "cmd/a_test.go", head+"type wide interface {\n\tb.I\n"+methods+"\tLast()\n}\n\n"+
				"type fits interface {\n\tb.I\n\tio.Reader\n"+methods+"}\n"),
			[]string{"cmd wide: 13 methods, and 12 is the most"}},
	})
}

func TestStyleBreaches(t *testing.T) {
	runAll(t, []planted{
		{"init", noInit,
			[]string{"a.go", "package a\n\nfunc init() {}\n\nfunc (a) init() {}\n"},
			[]string{"a.go:3: func init"}},
		{"a long line", linesFit,
			[]string{"internal/a/a.go", "package a\n\n//" + strings.Repeat(" word", 30) + "\nvar a = 1\n"},
			[]string{"internal/a/a.go:3: 152 columns, and 120 is the most"}},
		{"a long string", linesFit,
			[]string{"internal/a/a.go", "package a\n\nconst text = \"" + strings.Repeat("word ", 30) + "\"\n"}, nil},
		{"lines with wide tabs", wideFiles.check(nil),
			[]string{
				"internal/a/a.go", "package a\n\n\t//" + strings.Repeat(" word", 23) + "\n//" + strings.Repeat(" word", 23) + "\n",
				"test/a_test.go", "package test\n\n\t//" + strings.Repeat(" word", 23) + "\n",
			},
			[]string{"internal/a/a.go: 1 wide lines, and 0 is the most",
				"tests and tools in test: 1 wide lines, and 0 is the most"}},
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
	dials := "package a\n\nimport \"github.com/redis/go-redis/v9\"\n\nvar c = redis.NewClient(nil)\n"
	one := "package a\n\nimport \"cellserver/internal/racetest\"\n\nfunc TestA(t *testing.T) {\n" +
		"\tracetest.HasOneGoroutine(t)\n}\n"
	off := "//go:build !race\n\npackage a\n"
	less := "package a\n\nimport \"cellserver/internal/racetest\"\n\nvar few = racetest.Enabled\n"
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
		{"skips everywhere", testsWithoutTheRaceDetectorRun,
			[]string{"Makefile", "test:\n\tgo test ./a\n\ntest-plain: b\n\tgo test ./c ./d/...\n\nx:\n\tgo test ./e\n",
				"a/a_test.go", one, "c/c_test.go", one, "d/e/f_test.go", one, "e/e_test.go", one},
			[]string{"a/a_test.go:6: needs a run without the race detector, and is not in make test-plain",
				"e/e_test.go:6: needs a run without the race detector, and is not in make test-plain"}},
		{"checks less everywhere", testsWithoutTheRaceDetectorRun,
			[]string{"internal/a/a_test.go", less, "test/a/a_test.go", less},
			[]string{"internal/a/a_test.go:5: needs a run without the race detector, and is not in make test-plain"}},
		{"is off everywhere", testsWithoutTheRaceDetectorRun,
			[]string{"test/a/a_test.go", off, "a/b.go", off},
			[]string{"test/a/a_test.go:1: needs a run without the race detector, and is not in make test-plain"}},
		{"sleeps", testsDoNotSleep(nil),
			[]string{"a_test.go", sleeps, "internal/server/a.go", sleeps},
			[]string{"a_test.go:6: sleeps without an excuse"}},
		{"dials", testsArePatient,
			[]string{"test/a/a_test.go", dials, "internal/a/a_test.go", dials, "test/peer/client.go", dials},
			[]string{"test/a/a_test.go:5: redis.NewClient in place of peer.Client"}},
		{"sleeps for a reason", testsDoNotSleep(excuses{"a_test.go f": "waits for a real clock"}),
			[]string{"a_test.go", sleeps},
			nil},
	})
}
