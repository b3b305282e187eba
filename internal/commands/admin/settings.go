package admin

import (
	"errors"
	"strings"
	"time"

	"cellserver/internal/command"
	"cellserver/internal/option"
	"cellserver/internal/stats"
)

// Settings are the values of the family's options.
type Settings struct {
	SlowerThan  int       // microseconds from which SLOWLOG keeps a call, -1 for none
	SlowCalls   int       // number of calls that SLOWLOG keeps
	Threshold   int       // milliseconds from which LATENCY records a call, 0 for none
	Tracking    string    // yes or no: latency-tracking
	Percentiles []float64 // shown by INFO latencystats
	Debug       string    // which clients may use DEBUG: yes for all, local for those on this machine, no for none
	Protected   string    // which clients may change protected settings
}

// NewSettings returns the defaults.
func NewSettings() Settings {
	return Settings{
		SlowerThan: 10_000, SlowCalls: 128, Tracking: "yes", Percentiles: []float64{50, 99, 99.9},
		Debug: "no", Protected: "no",
	}
}

// Options describes the settings.
func (s *Settings) Options() []*option.Option {
	return []*option.Option{
		{Name: "slowlog-log-slower-than", Group: option.Diagnostics,
			Kind: option.Number(&s.SlowerThan, -1, command.MaxInt), Change: option.Live,
			Help: "microseconds from which SLOWLOG keeps a call; -1 for none; below 1000, every call is measured, which costs about 0.1 us each"},
		{Name: "slowlog-max-len", Group: option.Diagnostics, Kind: option.Number(&s.SlowCalls, 0, stats.MaxSlowCalls),
			Change: option.Live, Help: "calls that SLOWLOG keeps"},
		{Name: "latency-monitor-threshold", Group: option.Diagnostics,
			Kind: option.Time(&s.Threshold, time.Millisecond, 0, command.MaxInt), Change: option.Live,
			Help: "milliseconds from which LATENCY records a call; 0 for none"},
		{Name: "latency-tracking", Group: option.Diagnostics, Kind: yesNo(&s.Tracking), Change: option.Live,
			Help: "count how long calls take, by command; of quick calls, a sample is measured"},
		{Name: "latency-tracking-info-percentiles", Group: option.Diagnostics, Kind: percentiles(&s.Percentiles),
			Change: option.Live, Words: true, Help: "percentiles of these times that INFO shows"},
		{Name: "enable-debug-command", Group: option.Access, Kind: option.Choice(&s.Debug, "no", "yes", "local"),
			Change: option.Immutable, Help: "which clients may use DEBUG: none, all, or those on this machine"},
		{Name: "enable-protected-configs", Group: option.Access,
			Kind:   option.Choice(&s.Protected, "no", "yes", "local"),
			Change: option.Immutable,
			Help:   "which clients may change protected settings with CONFIG SET: none, all, or those on this machine"},
	}
}

// Effects returns what to do when a setting changes. It also applies the settings that cannot change.
func (a *Admin) Effects(s *Settings, server *command.Server) []option.Effect {
	a.Debug, a.Protected = s.Debug, s.Protected
	counts := &server.Stats
	counts.SlowLog.MaxEntries = s.SlowCalls
	return []option.Effect{
		option.On(func() { logSlowerThan(server, int64(s.SlowerThan)) }, "slowlog-log-slower-than"),
		option.On(func() { counts.SlowLog.SetMaxEntries(s.SlowCalls) }, "slowlog-max-len"),
		option.On(func() { counts.Latency.Threshold.Store(int64(s.Threshold)) }, "latency-monitor-threshold"),
		option.On(func() { counts.TrackLatency(s.Tracking == "yes") }, "latency-tracking"),
		option.On(func() { counts.ShowPercentiles(s.Percentiles) }, "latency-tracking-info-percentiles"),
	}
}

// logSlowerThan sets the time, in microseconds, from which SLOWLOG keeps a call. If it is less than a
// quick call may take, all calls are timed.
func logSlowerThan(server *command.Server, usec int64) {
	server.Stats.SlowLog.SlowerThan.Store(usec)
	server.Hooks.Set(command.Timed, 0 <= usec && usec < stats.FastCallMax)
}

// yesNo returns the Kind of yes or no, in upper or lower case. Its errors are Redis's, which differ from
// the errors of a choice.
func yesNo(to *string) option.Kind {
	return option.Parsed[string]{To: to, Format: strings.Clone, Word: "yes|no", Allowed: "yes, no",
		Wrong: "it must be one of yes, no", Parse: func(text string) (string, error) {
			if text = strings.ToLower(text); text != "yes" && text != "no" {
				return "", errors.New("argument must be 'yes' or 'no'")
			}
			return text, nil
		}}
}

// percentiles returns the Kind of numbers from 0 to 100, separated by spaces.
func percentiles(to *[]float64) option.Kind {
	return option.Parsed[[]float64]{To: to, Parse: parsePercentiles, Word: "percentiles",
		Wrong:   `it must be numbers from 0 to 100 with spaces between, such as "50 99 99.9"`,
		Allowed: "0 to 100, separated by spaces",
		Format: func(list []float64) string {
			var words []string
			for _, percent := range list {
				words = append(words, formatPercentile(percent))
			}
			return strings.Join(words, " ")
		}}
}
