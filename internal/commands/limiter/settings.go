package limiter

import (
	"time"

	"cellserver/internal/decide"
	"cellserver/internal/option"
)

// Settings are the values of the family's options.
type Settings struct {
	TopSeed     uint64 // of what CL.TOP samples; chosen at random if 0. It is for tests
	MaxLogLimit int    // the largest limit of CL.SLIDINGLOG
	MaxHolders  int    // maximum number of holders per key
	MaxWaiting  int    // maximum number of calls that wait, with WAIT
	IDSeconds   int    // for which the ID of a call is remembered
	MaxIDs      int    // maximum number of IDs that are remembered in memory
	HoldSeconds int    // after which a hold lapses at the latest
	MaxHolds    int    // maximum number of open holds
	OOMDecision string // the reply if there is no memory for a new key: error or limit
	StoreFails  string // the reply if the store does not make a decision: error, allow, deny or local
}

// NewSettings returns the defaults.
func NewSettings() Settings {
	return Settings{MaxLogLimit: 100_000, MaxHolders: 10_000, MaxWaiting: 10_000, IDSeconds: 10, MaxIDs: 1_000_000,
		HoldSeconds: 3600, MaxHolds: 1_000_000,
		OOMDecision: "error",
		StoreFails:  "error"}
}

// Options describes the settings.
func (s *Settings) Options() []*option.Option {
	return []*option.Option{
		{Name: "max-log-limit", Group: option.Limits, Kind: option.Number(&s.MaxLogLimit, 1, 10_000_000),
			Help: "the largest limit of CL.SLIDINGLOG, which keeps 16 bytes for each call in its window; at most 4000 with --store",
			Use:  "Raise it if a CL.SLIDINGLOG must allow more calls in its window, and memory for them suffices."},
		{Name: "max-holders", Group: option.Limits, Kind: option.Number(&s.MaxHolders, 1, 100_000),
			Help: "maximum number of holders that have leases of one key",
			Use:  "Raise it if more processes than this hold leases of one key at the same time."},
		{Name: "max-waiting", Group: option.Limits, Kind: option.Number(&s.MaxWaiting, 1, 1_000_000),
			Change: option.Live,
			Help:   "maximum number of calls that wait with the option WAIT; on one key, a tenth of it",
			Use:    "Raise it if calls get the error that too many wait; lower it to bound the memory of waiting clients."},
		{Name: "id-ttl", Group: option.Limits, Kind: option.Time(&s.IDSeconds, time.Second, 1, 86_400),
			Help: "seconds for which a limiter remembers the decision about a call with the option ID",
			Use:  "Raise it if clients retry for longer than that; each ID takes memory for this time."},
		{Name: "max-ids", Group: option.Limits, Kind: option.Number(&s.MaxIDs, 1, 10_000_000),
			Help: "maximum number of IDs that are remembered in memory; beyond it, the oldest are forgotten",
			Use:  "Raise it if cell_ids_forgotten in INFO grows: then calls may take twice."},
		{Name: "max-hold", Group: option.Limits, Kind: option.Time(&s.HoldSeconds, time.Second, 1, 86_400),
			Help: "seconds after which a hold lapses at the latest, whatever its call says",
			Use:  "Raise it if a call that is charged first takes longer than that; each open hold takes memory for this time."},
		{Name: "max-holds", Group: option.Limits, Kind: option.Number(&s.MaxHolds, 1, 10_000_000),
			Help: "maximum number of open holds; beyond it, the hold that ends first lapses before its time",
			Use:  "Raise it if cell_holds_lapsed_early in INFO grows: then charges cannot be corrected."},
		{Name: "oom-decision", Group: option.Memory, Kind: option.Choice(&s.OOMDecision, "error", "limit"),
			Change: option.Live,
			Help:   "reply of a limiter that would have to add a key beyond maxmemory: an error (OOM), or that the call is limited",
			Use:    "Choose limit for clients that treat any error as permission."},
		{Name: "store-fails", Group: option.Store, Kind: option.Choice(&s.StoreFails, decide.Answers[:]...),
			Change: option.Live,
			Help:   "reply of a limiter if the store does not answer: an error, that the call is allowed, that it is limited, or what this process decides in its own memory",
			Use:    "Choose allow if an outage must not stop requests, deny if it must not admit too many, local for a middle way."},
	}
}

// Effects applies the settings, and returns the effects of the ones that may change at run time. setMaxWaiting
// is the function of the sessions that bounds calls with WAIT.
func (l *Family) Effects(s *Settings, setMaxWaiting func(calls int)) []option.Effect {
	l.Top.Seed = s.TopSeed
	l.maxLogLimit, l.maxHolders = s.MaxLogLimit, s.MaxHolders
	l.IDTime, l.MaxHold = time.Duration(s.IDSeconds)*time.Second, time.Duration(s.HoldSeconds)*time.Second
	return []option.Effect{
		option.On(func() { setMaxWaiting(s.MaxWaiting) }, "max-waiting"),
		option.On(func() { l.LimitWhenFull.Store(s.OOMDecision == "limit") }, "oom-decision"),
		option.On(func() { l.Fallback.SetPolicy(s.StoreFails) }, "store-fails"),
	}
}
