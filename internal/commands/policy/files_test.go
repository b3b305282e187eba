package policy

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/metric"
	policies "cellserver/internal/policy"
	"cellserver/internal/stats"
)

// written is a file that tests write, and its log.
type written struct {
	Files
	text string // the file; an error if it begins with a !
	log  bytes.Buffer
}

func newWritten(t *testing.T, text string) *written {
	w := &written{text: text}
	w.Counts = new(stats.PolicyDecisions)
	w.Read = func() ([]policies.File, error) {
		if reason, fails := strings.CutPrefix(w.text, "!"); fails {
			return nil, errors.New(reason)
		}
		return []policies.File{{Name: "p.yaml", Text: []byte(w.text)}}, nil
	}
	w.Log = slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	require.NoError(t, w.Load())
	w.log.Reset()
	return w
}

// logged returns what was logged since the last call.
func (w *written) logged() string {
	defer w.log.Reset()
	return w.log.String()
}

const (
	one   = "policies:\n  a: {limits: [{quota: {limit: 9, per: day}}]}\n"
	two   = one + "  b: {limits: [{fixed: {limit: 9, period: 1m}}]}\n"
	month = "policies:\n  a: {limits: [{quota: {limit: 9, per: month}}]}\n"

	refused  = `level=WARN msg="the policies were not reloaded: the last valid ones stay in force" error=`
	reloaded = `level=INFO msg="policies reloaded" `
)

// Each line has the files that a Look finds, the policies that are in force afterwards, and the
// log.
func TestLook(t *testing.T) {
	w := newWritten(t, one)
	for i, step := range []struct {
		text  string
		names string
		log   string
	}{
		{one, "a", ""},
		{two, "a", ""}, // the file may be incomplete
		{two, "a b", reloaded + "policies=2 changes=1\n" + `level=INFO msg="policy b: new"` + "\n"},
		{two, "a b", ""},
		{one, "a b", ""},              // the beginning of a file is valid
		{two[:len(one)+9], "a b", ""}, // more of the file
		{two, "a b", ""},              // now the file is whole, and as before
		{two, "a b", ""},              // nothing has changed
		{two + "  c", "a b", ""},
		{two + "  c", "a b", refused + `"p.yaml:4:`}, // an invalid file is reported once
		{two + "  c", "a b", ""},
		{"!no file", "a b", ""},
		{"!no file", "a b", refused + `"no file"`},
		{"!no file", "a b", ""},
		{two, "a b", ""},
		{two, "a b", reloaded + "policies=2 changes=0\n"}, // the earlier report is no longer true
		{month, "a b", ""},
		{one, "a b", ""}, // no two successive looks find the same
		{month, "a b", ""},
		{month, "a", reloaded + "policies=1 changes=2\n" +
			`level=INFO msg="policy a: quota day -> month: begins anew"` + "\n" + `level=INFO msg="policy b: removed"` + "\n"},
	} {
		w.text = step.text
		w.Look()
		require.Equal(t, step.names, strings.Join(w.InForce().Names(), " "), "step %d", i)
		if got := w.logged(); step.log == "" {
			require.Empty(t, got, "step %d", i)
		} else {
			require.True(t, strings.HasPrefix(got, step.log), "step %d: %s", i, got)
		}
	}
}

// A Reload applies or refuses at once, and the Looks after it say nothing more.
func TestReload(t *testing.T) {
	w := newWritten(t, one)
	look := func() {
		w.Look()
		w.Look()
		require.Empty(t, w.logged())
	}
	w.text = two
	reloads := 0
	w.OnReload(func() { reloads++ })
	changes, err := w.Reload()
	require.NoError(t, err)
	require.Equal(t, []string{"b: new"}, changes)
	require.Contains(t, w.logged(), "policies=2 changes=1")
	look()
	w.text = two + "  c: {}\n  d: {}"
	_, err = w.Reload()
	require.ErrorContains(t, err, "p.yaml:4: a policy must have limits\np.yaml:5: ")
	require.Contains(t, w.logged(), "p.yaml:4: a policy must have limits; p.yaml:5: ")
	require.Equal(t, 2, w.InForce().Len())
	look()
	require.Equal(t, 1, reloads, "not of what was refused")

	none := &Files{}
	require.NoError(t, none.Load())
	_, err = none.Reload()
	require.ErrorIs(t, err, errNoFiles)
	require.Zero(t, none.InForce().Len())
}

// INFO and the metrics show whether the files that were read last are in force.
func TestInfoOfFiles(t *testing.T) {
	w := newWritten(t, one)
	gauges := func() (values []float64) {
		var out metric.Samples
		w.Metrics().Read(&out)
		for _, sample := range out.List {
			if len(sample.Labels) > 0 {
				continue
			}
			values = append(values, sample.Value)
		}
		return values
	}
	info := func() string {
		var out command.InfoText
		for _, part := range w.Info() {
			part.Write(nil, &out)
		}
		state, _, _ := strings.Cut(out.String(), "policy_decisions_")
		return state
	}
	require.Equal(t, "policies:1\r\npolicies_failing:0\r\n", info())
	w.text = "!no file"
	_, _ = w.Reload()
	require.Equal(t, "policies:1\r\npolicies_failing:1\r\n", info())
	require.Equal(t, []float64{1, 1}, gauges())
	w.text = two
	_, _ = w.Reload()
	require.Equal(t, "policies:2\r\npolicies_failing:0\r\n", info())
	require.Equal(t, []float64{2, 0}, gauges())
	w.InForce().Policy([]byte("a")).Counts.Load().Add(1, stats.Banned)
	var out command.InfoText
	w.Info()[0].Write(nil, &out)
	require.Contains(t, out.String(), "policy_decisions_a:allowed=0,limited=0,shadow=0,banned=1,error=0,sampled=0,near=0\r\n")
	require.Empty(t, new(Files).Info())
	require.Empty(t, new(Files).Metrics().Metrics)
}
