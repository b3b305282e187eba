package memory

// All changes of a step on several keys must be in the same pass, because a crash may leave one
// pass without the next. A pass visits one shard after the other. A step during the pass that
// changes one key in a shard that has been visited, and another in a shard that has not, would be
// in the pass by half. Such a step therefore appends the entries of all keys that it has changed to
// the pass before it unlocks them. The pass may visit these keys later and write them again. That
// is harmless: an entry is made while its key is locked, so the entries of a key are in the order
// of its changes, and the last one counts.
//
// A step that locked its keys before the pass began need not do so: the pass cannot visit any of
// its shards before the step has ended.

// step is a step on several keys that has locked them during a pass.
type step struct {
	pass   uint64 // number of that pass
	locked []lockedDatabase
	refs   map[changedRef]struct{}  // records that the step has changed
	names  map[changedName]struct{} // keys that the step has changed, and that must be looked up
}

type changedRef struct {
	shard *shard
	at    ref
}

type changedName struct {
	shard *shard
	key   string
}

// stepBytes bounds the entries that a step writes to the pass, so that it holds its locks for at
// most a fraction of a millisecond longer. If the entries of a step are larger, it writes none, and
// the pass visits all shards once more and finds all its changes. In its last round the bound is
// lifted: clients that make large steps all the time would otherwise keep the pass from ending.
const stepBytes = 1 << 20

// beginStep is called when a step has locked the shards of several keys.
func (v *viewState) beginStep(db *database, set *lockSet) {
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

// endStep is called before the step unlocks its shards. It writes the keys that the step has
// changed to the pass.
func (v *viewState) endStep() {
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
