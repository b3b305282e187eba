package stats

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// decided is a decision as the model of a history remembers it: all of them, one by one.
type decided struct {
	second int64 // of the latest sample before it
	result Result
	of     *Decisions
}

// pastModel is the naive model of the histories of a PolicyDecisions.
type pastModel struct {
	real   *PolicyDecisions
	second int64
	began  map[string]int64
	counts map[string]*Decisions // of policies that are in force
	all    []decided
}

func (m *pastModel) decide(policy string, client int64, r Result) {
	d := m.real.Of(policy)
	d.Add(client, r)
	name := policy
	if d == &m.real.others {
		name = OtherPolicies
	}
	if m.counts[name] == nil {
		m.counts[name], m.began[name] = d, m.second
	}
	if _, began := m.began[AllPolicies]; !began {
		m.began[AllPolicies] = m.second
	}
	m.all = append(m.all, decided{m.second, r, d})
}

// past counts the decisions of a policy again, for each of its points.
func (m *pastModel) past(policy string, step Step, most int) (points []Results) {
	began, known := m.began[policy]
	if !known {
		return nil
	}
	end := m.second / int64(step)
	first := max(end-int64(min(most, step.MaxPoints())), began/int64(step))
	for at := first; at < end; at++ {
		var sum Results
		for _, one := range m.all {
			if one.second/int64(step) == at && (policy == AllPolicies || one.of == m.counts[policy]) {
				sum[one.result]++
			}
		}
		points = append(points, sum)
	}
	return points
}

func (m *pastModel) compare(t *rapid.T, policy string, step Step, most int) {
	points, end, known := m.real.Past(policy, step, most)
	want := m.past(policy, step, most)
	_, isThere := m.began[policy]
	require.Equal(t, isThere || policy == AllPolicies || policy == OtherPolicies, known, policy)
	require.Equal(t, m.second/int64(step)*int64(step), end)
	require.Equal(t, len(want), len(points), "%s %d", policy, step)
	for i := range want {
		require.Equal(t, want[i], points[i], "%s %d: point %d", policy, step, i)
	}
}

// step makes a random change, or compares.
func (m *pastModel) step(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c", AllPolicies, OtherPolicies}).Draw(t, "policy")
	changes := []string{"decide", "decide", "decide", "sample", "sample", "keep", "reset", "look"}
	switch rapid.SampledFrom(changes).Draw(t, "what") {
	case "decide":
		if name == AllPolicies || name == OtherPolicies {
			name = fmt.Sprintf("p%d", rapid.IntRange(0, 60).Draw(t, "number")) // some more than are counted by name
		}
		for range rapid.IntRange(1, 5).Draw(t, "times") {
			result := Result(rapid.IntRange(0, int(Failed)).Draw(t, "result"))
			m.decide(name, rapid.Int64Range(0, 9).Draw(t, "client"), result)
		}
	case "sample":
		passed := []int64{0, 1, 1, 1, 2, 7, 59, 60, 61, 290, 300, 3601, 86_399, 86_400, 90_000}
		m.second += rapid.SampledFrom(passed).Draw(t, "seconds")
		m.real.Sample(m.second)
	case "keep":
		kept := rapid.SampledFrom([]string{"a", "b", "p7"}).Draw(t, "kept")
		m.real.Keep(func(policy string) bool { return policy == kept })
		for policy := range m.counts {
			if policy != kept && policy != OtherPolicies {
				delete(m.counts, policy)
				delete(m.began, policy)
			}
		}
	case "reset":
		m.real.Reset()
	case "look":
		most := rapid.SampledFrom([]int{0, 1, 5, 300, 1440, 9999}).Draw(t, "most")
		m.compare(t, name, rapid.SampledFrom([]Step{Second, Minute}).Draw(t, "step"), most)
	}
}

// Whatever is decided, removed and reset, and whenever samples are taken, the points are those of a model that
// remembers each decision.
func TestHistoryIsThatOfTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &pastModel{real: new(PolicyDecisions), began: make(map[string]int64), counts: make(map[string]*Decisions),
			second: rapid.Int64Range(1, 2_000_000).Draw(t, "start")}
		m.real.Sample(m.second)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			m.step(t)
		}
		for _, policy := range []string{"a", AllPolicies, OtherPolicies} {
			m.compare(t, policy, Second, historySeconds)
			m.compare(t, policy, Minute, historyMinutes)
		}
	})
}

// A number that does not fit into 32 bits stays at the largest one, and the seconds of a suspended process are empty.
func TestHistoryDoesNotOverflow(t *testing.T) {
	var p PolicyDecisions
	p.Sample(60)
	p.Of("a").stripes[0].counts[Limited].Store(math.MaxUint32 + 7)
	p.Sample(180)
	points, end, _ := p.Past("a", Minute, 10)
	assert.Equal(t, int64(180), end)
	assert.Equal(t, []Results{{Limited: math.MaxUint32}, {}}, points)
}

// The memory of all histories is bounded, whatever files of policies bring, and however often they are loaded. A policy
// that is not in force any more takes none.
func TestHistoriesAreBounded(t *testing.T) {
	var p PolicyDecisions
	assert.Zero(t, p.HistoryBytes())
	for second := range int64(50) {
		p.Sample(second)
		for i := range 10_000 {
			p.Of(fmt.Sprintf("%064d", second*10_000+int64(i))).Add(int64(i), Limited)
		}
		if second%10 == 9 {
			p.Keep(func(string) bool { return false })
		}
		assert.LessOrEqual(t, p.HistoryBytes(), int64(2<<20))
	}
	assert.Equal(t, int64(unsafe.Sizeof(history{}))*2, p.HistoryBytes(), "of the others and of all")
	assert.Equal(t, 32, MaxPolicies)
	assert.Less(t, float64((MaxPolicies+2)*unsafe.Sizeof(history{})), 1.2*(1<<20))
}

// A sample allocates nothing once there are histories, and a decision never does.
func TestHistoryAllocatesNothing(t *testing.T) {
	var p PolicyDecisions
	d, second := p.Of("a"), int64(1)
	p.Sample(second)
	p.Sample(second + 1)
	assert.Zero(t, testing.AllocsPerRun(200, func() {
		d.Add(second, Allowed)
		second++
		p.Sample(second)
	}))
}

// Counts that are set to zero before the others have a history are in it all the same.
func TestResetBeforeOthersHaveAHistory(t *testing.T) {
	var p PolicyDecisions
	p.Sample(1000)
	for i := range MaxPolicies {
		p.Of(fmt.Sprint("p", i))
	}
	p.Sample(1001)
	p.Of("another").Add(1, Limited)
	p.Reset()
	p.Sample(1002)
	points, _, _ := p.Past(AllPolicies, Second, 1)
	assert.Equal(t, int64(1), points[0][Limited])
}
