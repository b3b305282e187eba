package policy

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
)

// used is a limit that a test uses up, and gives back, without an algorithm.
type used struct{ size, used int64 }

func (u *used) take(n int64) quota.Decision {
	u.used += n
	return quota.Decision{Limit: u.size, Remaining: max(u.size-u.used, 0), Taken: n, Limited: u.used > u.size}
}

// crossings takes steps on a limit, and compares what Crossing says with the shares before and after each step. It
// returns a difference.
func crossings(t *rapid.T, crossing func(n Notify, kind limit.Kind, d *quota.Decision, exceeds bool) Crossing) string {
	n := rapid.SampledFrom([]Notify{{80}, {10, 100}, {80, 95, 100}, {11, 12, 13, 14, 15, 16, 17, 18}}).Draw(t, "notify")
	u := used{size: rapid.OneOf(rapid.Int64Range(1, 30), rapid.Int64Range(1, math.MaxInt64/101)).Draw(t, "size")}
	kind := rapid.SampledFrom(limit.OfPolicies).Draw(t, "kind")
	lines := Limit{lines: n.linesOf(u.size)}
	for range rapid.IntRange(1, 20).Draw(t, "steps") {
		before := u.used
		d := u.take(rapid.Int64Range(-before, u.size-before).Draw(t, "quantity"))
		got := crossing(n, kind, &d, false)
		var want Crossing
		for i, share := range n {
			for set, line := range map[*uint8]int64{&want.Reached: share, &want.Rearmed: max(share-10, 1)} {
				if before*100 < line*u.size && u.used*100 >= line*u.size {
					*set |= 1 << i
				}
			}
		}
		want.Certain = d.Taken > 0 && (kind == limit.Fixed || kind == limit.Quota)
		switch crossed := got.Reached|got.Rearmed != 0; {
		case got != want:
			return "the step has crossed something else"
		case crossed && !lines.Nears(&d):
			return "Nears overlooks the step"
		}
	}
	return ""
}

func TestCrossing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { require.Empty(t, crossings(t, Notify.Crossing)) })
	for name, planted := range map[string]func(n Notify, kind limit.Kind, d *quota.Decision, exceeds bool) Crossing{
		"reached when exceeded": func(n Notify, kind limit.Kind, d *quota.Decision, exceeds bool) Crossing {
			one := *d
			one.Remaining++
			return n.Crossing(kind, &one, exceeds)
		},
		"by refunds": func(n Notify, kind limit.Kind, d *quota.Decision, exceeds bool) Crossing {
			one := *d
			if one.Taken < 0 {
				one.Taken, one.Remaining = -one.Taken, one.Remaining+one.Taken
			}
			return n.Crossing(kind, &one, exceeds)
		},
		"certain of all kinds": func(n Notify, kind limit.Kind, d *quota.Decision, exceeds bool) Crossing {
			return n.Crossing(limit.Fixed, d, exceeds)
		},
	} {
		t.Run("catches: "+name, func(t *testing.T) {
			draws := rapid.Custom(func(t *rapid.T) string { return crossings(t, planted) })
			for seed := range 1000 {
				if draws.Example(seed) != "" {
					return
				}
			}
			t.Fatal("the planted fault was not detected")
		})
	}
}

// The largest limits do not wrap.
func TestCrossingOfLargeLimits(t *testing.T) {
	n := Notify{80, 100}
	u := used{size: math.MaxInt64}
	d := u.take(math.MaxInt64)
	require.Equal(t, Crossing{Reached: 3, Rearmed: 3, Certain: true}, n.Crossing(limit.Fixed, &d, false))
	require.Equal(t, []int64{6456360425798343065, 7378697629483820646, 8301034833169298227, math.MaxInt64},
		n.linesOf(math.MaxInt64))
	d = quota.Decision{Limit: math.MaxInt64, Remaining: 0, Taken: math.MaxInt64} // of which most was used before
	require.False(t, n.Crossing(limit.Fixed, &d, true).Certain)
	d = quota.Decision{Taken: 5} // a limit of 0, with FORCE
	require.Zero(t, n.Crossing(limit.Fixed, &d, true))
}

func TestEventJSON(t *testing.T) {
	e := Event{ID: "a-1", Time: 2, Policy: "api", Subject: ShownSubject([]byte("a\xff\"<")), Limit: "fixed", Used: 8,
		Size: 10, Threshold: 80, Resets: 3}
	require.Equal(t, `{"id":"a-1","time":2,"policy":"api","subject":"a\ufffd\"\u003c","limit":"fixed","used":8,"size":10,`+
		`"threshold":80,"resets":3,"shadow":false}`, string(e.JSON()))
	require.Equal(t, strings.Repeat("a", 256), ShownSubject([]byte(strings.Repeat("a", 256))))
	require.Equal(t, "%#e8d95cc2", ShownSubject([]byte(strings.Repeat("a", 257)))[:10])
}
