package storetest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/leaktest"
	"cellserver/internal/store"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// The contract does not depend on the memory store: a store that shares no code with it obeys it
// too.
func TestNaiveKeepsTheContract(t *testing.T) {
	Run(t, func(_ *testing.T, clock store.Clock) store.Store { return newNaive(clock, none) })
}

// fault is a fault of the naive store.
type fault int

const (
	none fault = iota
	remembersLimit
	losesRefund
	forgetsDebt
	writesOnPeek
	chargesRefused
	storesErrors
	unlocked
	readsEachCall
	runsBack
	manyInstants
	looksUpExpired
	countsExpired
	scansExpired
	drawsExpired
	deletesExpired
	stopsAtNUL
	shortKeys
	borrows
	oneDatabase
	sizesAll
	flushesOne
	drawsFirst
	countsOnce
	deletesTwice
	halfDeletes
	noticesTwice
	noticesNothing
	quietDelete
	sweepNamesCaller
	namesFirstCaller
	flushesByKey
	quietExpiry
	quietRevival
	leavesExpired
	keepsListener
	tellsLatest
	endsAll
	quietMaking
	skipsKeys
	movesCursor
	ignoresCount
	holdsCursor
	createsPrefetched
	mixesKinds
	remembersKind
	keepsPastEnd
	leavesState
	borrowsHolder
	inspectsExpired
	forgetsPrevious
	peekTakes
	keepsEmpty
	quietWindows
	unlockedWindows
	losesRenewal
	leasesForever
	countsRetries
	releasesAnyHolder
	listsByName
	unlockedLeases
	ignoresMaxHolders
	renewsRefused
	noticesAnyRelease
	keepsLongestEnd
	mixesAnswers
	halfTakes
	peekTakesAll
	takesUpToError
	givesBackAnyway
	takesInPieces
	manyInstantsOfAll
	readsBinary
	writesKeepExpiry
	quietValues
	wrapsSums
	unlockedSums
	sumsForgetExpiry
	editsAnyway
	patchesFromZero
	partsOfAll
	replacesAnyway
	transfersForEver
	movesLeave
	copiesShare
	swapsQuietly
	stepsApart
	losesStepsError
	neverOver
	usesToLook
	usesToChange
	looksAtBlocked
	forgetsOthers
	reportsUnadjusted
	noGrowthAdds
	noGrowthRefusesAll
	noGrowthGrows
	noGrowthTakesHalf
	noGrowthExpires
	countsNoExpiryAlways
	countsNoValues
	unlockedStandings
	noticesAnyStanding
	standingsWithBans
	noGrowthStandings
	formsForgetUntil
	formsOfOneKind
	formsKept
	formsOfValues
	formsOfEnded
	formsExpired
	quietForms
	noGrowthForms
	windowsFromNow
	mixesCycles
	quotasByElapsedTime
	windowsComeBack
	looksForWindows
	onceTakesAgain
	onceForEver
	onceRemembersAll
	onceAnyWords
	onceAnyKey
	onceDeleted
	onceFirstKey
	onceUnlocked
	onceForgetsSteps
	noGrowthOnce
	claimsToBlock
	obeysContext
	leavesNothing
	upToLeavesNothing
	upToTakesFirst
	asksAsPeek
	shadowsRefuse
	shadowsTakeAnyway
	shadowsFail
	forcedLimits
	forcesAnyway
	takesBeforeError
	acquiresAnyway
	peekAcquires
	reportsGranted
	forgetsGaps
	allIgnoresMaxHolders
	noGrowthAcquires
	noGrowthForces
	unlockedSteps
	keepsHalfSteps
	faults // the number of faults
)

// detectedBy names the case that must detect each fault. Other cases may detect it too.
var detectedBy = map[fault]string{
	remembersLimit:       "limit changes",
	losesRefund:          "give back",
	forgetsDebt:          "modes",
	writesOnPeek:         "refused",
	chargesRefused:       "timeline",
	storesErrors:         "refused",
	unlocked:             "atomic",
	readsEachCall:        "one reading",
	runsBack:             "never back",
	manyInstants:         "one instant",
	looksUpExpired:       "expiry",
	countsExpired:        "expiry",
	scansExpired:         "expiry",
	drawsExpired:         "expiry",
	deletesExpired:       "expiry",
	stopsAtNUL:           "any bytes",
	shortKeys:            "any bytes",
	borrows:              "borrowed keys",
	oneDatabase:          "databases",
	sizesAll:             "size",
	countsNoExpiryAlways: "size",
	countsNoValues:       "size",
	flushesOne:           "flush",
	drawsFirst:           "random",
	countsOnce:           "several keys",
	deletesTwice:         "several keys",
	halfDeletes:          "several at once",
	noticesTwice:         "notices",
	noticesNothing:       "refused",
	quietDelete:          "notices",
	sweepNamesCaller:     "notices signed",
	namesFirstCaller:     "notices signed",
	flushesByKey:         "flush notices",
	quietExpiry:          "expiry notices",
	quietRevival:         "expiry written over",
	leavesExpired:        "expiry seen",
	keepsListener:        "listeners",
	tellsLatest:          "listeners",
	endsAll:              "listeners",
	quietMaking:          "keys made",
	skipsKeys:            "scan",
	movesCursor:          "scan amid change",
	ignoresCount:         "scan count",
	holdsCursor:          "scan cursor",
	usesToLook:           "idle",
	usesToChange:         "idle",
	createsPrefetched:    "prefetch",

	mixesKinds:        "kinds apart",
	remembersKind:     "kind follows kind",
	keepsPastEnd:      "expiry of any kind",
	leavesState:       "afresh",
	borrowsHolder:     "borrowed words",
	inspectsExpired:   "inspect",
	forgetsPrevious:   "any limiter",
	peekTakes:         "refused by any limiter",
	keepsEmpty:        "emptied",
	quietWindows:      "notices of limiters",
	unlockedWindows:   "atomic limiters",
	losesRenewal:      "leases",
	leasesForever:     "crashed holder",
	countsRetries:     "asking again",
	releasesAnyHolder: "wrong holder",
	listsByName:       "holders",
	unlockedLeases:    "no more than the limit",
	ignoresMaxHolders: "too many holders",
	renewsRefused:     "leases refused",
	noticesAnyRelease: "notices of leases",
	keepsLongestEnd:   "end of the last lease",
	mixesAnswers:      "all",
	halfTakes:         "all or nothing",
	peekTakesAll:      "all peek",
	takesUpToError:    "all but one of another kind",
	givesBackAnyway:   "all of any quantity",
	takesInPieces:     "all at once",
	manyInstantsOfAll: "all at one instant",

	looksAtBlocked:     "blocked",
	forgetsOthers:      "another period",
	reportsUnadjusted:  "all untaken",
	noGrowthAdds:       "no growth",
	noGrowthRefusesAll: "no growth",
	noGrowthGrows:      "no growth of a key",
	noGrowthTakesHalf:  "no growth for all",
	noGrowthExpires:    "no growth and expiry",

	readsBinary:      "values",
	writesKeepExpiry: "values",
	quietValues:      "notices of values",
	wrapsSums:        "sums",
	unlockedSums:     "sums at once",
	sumsForgetExpiry: "sums",
	editsAnyway:      "edits refused",
	patchesFromZero:  "patches",
	partsOfAll:       "patches",
	replacesAnyway:   "transfers",
	transfersForEver: "transfers",
	movesLeave:       "transfers",
	copiesShare:      "copies apart",
	swapsQuietly:     "databases swapped",
	stepsApart:       "steps as one",
	losesStepsError:  "steps that fail",
	neverOver:        "edits",

	unlockedStandings:  "standings at once",
	noticesAnyStanding: "notices of standings",
	standingsWithBans:  "standings",
	noGrowthStandings:  "no growth of standings",

	formsForgetUntil: "forms",
	formsOfOneKind:   "forms",
	formsKept:        "forms apart",
	formsOfValues:    "forms read",
	formsOfEnded:     "forms read",
	formsExpired:     "forms expired",
	quietForms:       "notices of forms",
	noGrowthForms:    "no growth of forms",

	windowsFromNow:      "calendar quotas",
	mixesCycles:         "other windows",
	quotasByElapsedTime: "wall clock set",
	windowsComeBack:     "wall clock set back",
	looksForWindows:     "window ahead",
	onceTakesAgain:      "once",
	onceForEver:         "once expired",
	onceRemembersAll:    "once taken",
	onceAnyWords:        "once reused",
	onceAnyKey:          "once by name",
	onceDeleted:         "once by name",
	onceFirstKey:        "once of several",
	onceUnlocked:        "once at once",
	onceForgetsSteps:    "once in a step",
	noGrowthOnce:        "no growth and once",

	leavesNothing:     "all of one",
	upToLeavesNothing: "all of one",
	upToTakesFirst:    "all in one step",
	asksAsPeek:        "all in one step",
	shadowsRefuse:     "all in one step",
	shadowsTakeAnyway: "all in one step",
	shadowsFail:       "no growth for shadows",

	forcedLimits:         "all forced",
	forcesAnyway:         "all forced",
	takesBeforeError:     "all forced too much",
	acquiresAnyway:       "all with leases",
	peekAcquires:         "all with leases",
	reportsGranted:       "all with leases",
	forgetsGaps:          "all with leases that end",
	allIgnoresMaxHolders: "all with too many holders",
	noGrowthAcquires:     "no growth for leases of all",
	noGrowthForces:       "no growth for forced of all",

	unlockedSteps:  "step at once",
	keepsHalfSteps: "step",

	claimsToBlock: "context",
	obeysContext:  "context",
}

// Each fault is detected by its case, and the failure quotes the rule of the contract.
func TestEveryFaultIsFound(t *testing.T) {
	byName := map[string]testCase{}
	for _, c := range cases() {
		byName[c.name] = c
	}
	for f := none + 1; f < faults; f++ {
		name := detectedBy[f]
		t.Run(fmt.Sprintf("%d %s", f, name), func(t *testing.T) {
			c, ok := byName[name]
			require.True(t, ok, "there is no case of that name")
			failures := failuresOf(c, f)
			require.NotEmpty(t, failures, "the case must fail on a store with the fault")
			require.Contains(t, failures[0], c.defends, "a failure must quote the rule of the contract")
		})
	}
}

// Each case is needed to detect some fault.
func TestEveryCaseFindsAFault(t *testing.T) {
	found := map[string]bool{}
	for _, name := range detectedBy {
		found[name] = true
	}
	for _, c := range cases() {
		require.True(t, found[c.name], "no fault is assigned to the case %s", c.name)
		require.False(t, strings.HasSuffix(c.defends, "."), c.defends)
	}
}

// All cases apply to a store with all abilities, and the exceptions are of cases that exist.
func TestCasesThatDoNotApply(t *testing.T) {
	named := map[string]bool{}
	for _, c := range cases() {
		named[c.name] = true
		require.True(t, c.appliesTo(store.AbilitiesOf(newNaive(store.NewStillClock(epoch), none)), false), c.name)
		require.Equal(t, needs[c.name] == 0, c.appliesTo(0, false), c.name)
	}
	for name := range needs {
		require.True(t, named[name], name)
	}
	for name := range notExternal {
		require.True(t, named[name], name)
	}
	for _, name := range slices.Concat(needsDatabases, needsOneSlot) {
		require.True(t, named[name], name)
	}
}

// The cases that RunWithoutExpiry leaves out detect that expired keys have not been removed.
func TestCasesThatNeedExpiry(t *testing.T) {
	left := slices.Clone(needsExpiry)
	for _, c := range cases() {
		if !slices.Contains(needsExpiry, c.name) {
			continue
		}
		left = slices.DeleteFunc(left, func(name string) bool { return name == c.name })
		require.True(t, slices.ContainsFunc([]fault{countsExpired, drawsExpired, deletesExpired},
			func(f fault) bool { return len(failuresOf(c, f)) > 0 }), c.name)
	}
	require.Empty(t, left, "there are no such cases")
}

// failuresOf runs a case on a store with a fault and returns its failures.
func failuresOf(c testCase, f fault) []string {
	clock := store.NewStillClock(epoch)
	return failures(c, clock, newNaive(clock, f))
}

// failures runs a case on a store and returns its failures.
func failures(c testCase, clock *store.StillClock, on store.Store) []string {
	taken := &recorder{}
	ended := make(chan struct{})
	go func() { // FailNow ends the goroutine
		defer close(ended)
		c.check(taken, clock, on)
	}()
	<-ended
	return taken.failures
}

// recorder is a T that records failures.
type recorder struct{ failures []string }

func (r *recorder) Helper()  {}
func (r *recorder) FailNow() { runtime.Goexit() }

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
