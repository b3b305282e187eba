package simulation

import (
	"math/rand/v2"

	"cellserver/internal/store/remote/combine"
)

// Plan describes a run. If PlanOf makes it, everything follows from the seed.
type Plan struct {
	Seed      uint64
	Processes int
	Primaries int
	Slots     int
	Keys      int     // of each slot
	Callers   int     // of each process; each submits its next step when the last has ended, and after a pause
	Pause     int64   // on average
	CallKey   string  // the key that callers use; if it is empty, they use a list
	Writes    bool    // all steps write one key; the hottest one is used by all processes
	Rate      int64   // mean time between two steps of a process
	CalmRate  int64   // the Rate without faults: then each step must succeed, so the load must not be too high
	Hot       float64 // the share of steps that are on the hottest key
	HotUsers  int     // how many processes use it
	Timeout   int64   // of a step
	Duration  int64   // of the part with faults
	Grace     int64   // how long after the last fault everything must work again
	Calm      int64   // how long the run goes on after that
	Known     int     // how many values a machine remembers
	DenialAge int64   // how long remembered values may deny steps

	Adds     bool    // servers make steps on limits themselves, on request
	Compared uint64  // one in so many of these steps has to be compared and set; 0 if none has
	Leave    float64 // the probability that servers leave a step to the process instead

	Lease int64   // how long tokens of aheadKey may be taken ahead; 0 if no tokens are
	Load  float64 // the demand for aheadKey, as a fraction of its limit
	Saves bool    // processes save their blocks, and all spend them at once
	Sleep int64   // a process is suspended for a while, and its monotonic clock with it

	Charges   int  // how many clients charge and correct, again and again
	Forgetful bool // a planted fault: steps do not look whether they were made before
	Refunds   bool // a planted fault: a correction is a refund of the whole difference

	Burst    int64 // of the limits; 0 means 20
	NoMargin bool  // limits expire at their TAT, without combine.ExpiryMargin

	Delay int64 // the longest distance between a process and a server, one way
	// Distances are the first processes' distances; the others' are random.
	Distances []int64
	Jitter    int64 // the longest additional delay of a message
	Wrong     int64 // how far processes may be wrong about clocks, besides half a round trip

	// Faults: probabilities for each pipeline, or the mean time between two, 0 for never.
	Cut      float64 // a connection is cut while a pipeline is under way
	CutIdle  int64   // all connections of a process are cut
	Late     float64 // a server answers that a request is to be sent later
	Refuse   float64 // a server refuses to write
	Stall    int64   // a server does nothing for a while
	Crash    int64   // a server dies, and its replica takes over without the last writes
	Split    int64   // like Crash, but the old server accepts writes for a while
	Move     int64   // a slot moves to another server
	Jump     int64   // a server's clock jumps
	JumpSize int64   // by at most this
	SetAt    int64   // once, so long after the start, all clocks are set to a later time, by JumpSize
	Unknown  float64 // a process forgets which server has a slot, each 50 ms
	Blackout int64   // messages between a process and a server are lost for a while

	KeepDurations bool // Result.Durations is wanted
}

func (p *Plan) burst() int64 {
	if p.Burst == 0 {
		return 20
	}
	return p.Burst
}

// margin is how long a limit stays after its TAT.
func (p *Plan) margin() int64 {
	if p.NoMargin {
		return 0
	}
	return combine.MarginFor(p.Timeout)
}

// PlanOf makes a plan from a seed: most have few processes and several faults, and some have
// hundreds of processes.
func PlanOf(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(of ...int64) int64 { return of[r.IntN(len(of))] }
	p := Plan{
		Seed:      seed,
		Processes: int(pick(1, 2, 3, 4, 8, 16, 50, 200)),
		Primaries: int(pick(1, 1, 3, 10)),
		Keys:      int(pick(2, 4, 20)),
		Hot:       float64(pick(0, 10, 50, 90)) / 100,
		HotUsers:  int(pick(2, 4, 8)),
		Timeout:   pick(50, 100, 100, 1000) * ms,
		Known:     int(pick(1, 10, 1000)),
		Delay:     pick(50, 200, 1000, 2000, 5000) * us,
		Jitter:    pick(0, 20, 500) * us,
	}
	p.Slots = p.Primaries * int(pick(1, 2, 4))
	p.Rate = int64(p.Processes) * pick(30, 100, 300) * us
	p.CalmRate = 10 * max(p.Rate, int64(p.Processes)*p.Delay)
	p.Duration = pick(200, 500, 1000) * ms
	sometimes := func(of ...int64) int64 { return pick(of...) * pick(0, 1) }
	p.Cut = float64(sometimes(1, 10, 100)) / 1000
	p.CutIdle = sometimes(50, 500) * ms
	p.Late = float64(sometimes(1, 20)) / 1000
	p.Refuse = float64(sometimes(1, 20)) / 1000
	p.Stall = sometimes(300, 1000) * ms
	p.Crash = sometimes(500, 2000) * ms
	p.Split = sometimes(500, 2000) * ms
	p.Move = sometimes(50, 500) * ms
	p.Jump = sometimes(300, 1000) * ms
	p.JumpSize = pick(1, 50, 5000) * ms
	p.Blackout = sometimes(100, 1000) * ms
	p.Unknown = 0.01
	p.Grace, p.Calm = 2500*ms, 500*ms
	if p.Jump > 0 {
		// A process notices from remembered values that a server's clock was set. If it remembers
		// fewer values than it uses, limits may have no effect until it measures the clock again,
		// which the oracle does not allow for.
		p.Known = 1000
	}
	if p.Primaries == 1 {
		p.Move = 0
	}
	p.DenialAge = sometimes(1, 20) * ms
	p.Adds = r.IntN(4) > 0
	p.Leave = float64(sometimes(1, 100)) / 1000
	p.Compared = 16
	p.Charges = min(8/p.Processes, 1) * int(sometimes(1, 3, 5)) // with few processes
	return p
}
