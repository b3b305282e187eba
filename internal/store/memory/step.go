package memory

// A step on several keys must be in one pass as a whole. A pass visits one shard after the other; so
// a step that begins during a pass, and changes a key that has been visited and one that has not,
// would be in it by half. Therefore such a step writes to the pass, before it unlocks its keys, what
// all the keys that it changed hold. Of several entries for a key the last counts, and entries are
// written while the key is locked, so a later visit replaces what the step wrote, not the reverse.
//
// A step that locked its keys before the pass began needs nothing of that: none of its shards is
// visited before it ends.

// step is a step on several keys that was begun during a pass.
type step struct {
	pass   uint64
	locked []lockedDatabase
	refs   map[changedRef]struct{}
	names  map[changedName]struct{}
}

type changedRef struct {
	shard *shard
	at    ref
}

type changedName struct {
	shard *shard
	key   string
}

// stepBytes is the size up to which a step writes to the pass what its keys hold, so that it holds
// its locks for at most a fraction of a millisecond longer. After a larger step, the pass visits all
// shards once more, and so contains all of it. If there is such a step each time, the limit is
// lifted.
const stepBytes = 1 << 20

// beginStep is called when a step has locked shards of several keys.
func (v *view) beginStep(db *database, set *lockSet) {
	t := v.memory.tracking.Load()
	if t == nil || !t.active.Load() {
		return
	}
	if v.step == nil {
		v.step = &step{
			pass: t.number.Load(), refs: map[changedRef]struct{}{}, names: map[changedName]struct{}{},
		}
	}
	v.step.locked = append(v.step.locked, lockedDatabase{db, *set})
	set.setStep(db, v.step)
}

// endStep is called before the step unlocks its shards. It writes to the pass what the step has
// changed.
func (v *view) endStep() {
	if v.step == nil {
		return
	}
	v.memory.tracking.Load().writeStep(v.step)
	for i := range v.step.locked {
		v.step.locked[i].set.setStep(v.step.locked[i].db, nil)
	}
	v.step = nil
}

func (set *lockSet) setStep(db *database, s *step) {
	for n := range uint32(shards) {
		if set.has(n) {
			db.shards[n].changes.step = s
		}
	}
}
