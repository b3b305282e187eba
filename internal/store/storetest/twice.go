package storetest

import (
	"context"

	"cellserver/internal/store"
)

// Twice is a store that runs what Edit is given more than once, and drops all results but the last, as one does that finds
// out at the end that another caller was faster. What callers say by such a function they have to say each time.
func Twice(s whole) store.Store { return &twice{s} }

// whole is a store that can do everything.
type whole interface {
	store.Store
	store.Announcer
	store.Meter
	Outside() int64
	Sweep() int
}

type twice struct{ whole }

func (t *twice) View() store.View { return twiceView{t.whole.View().(wholeView)} }

type wholeView interface {
	store.View
	store.Swapper
	store.Meter
	store.IdleTimer
}

type twiceView struct{ wholeView }

func (v twiceView) Tight() store.View { return twiceView{v.wholeView.Tight().(wholeView)} }

func (v twiceView) Edit(
	ctx context.Context, key []byte, edit func(store.Entry, []byte) (store.Change, error),
) error {
	return v.wholeView.Edit(ctx, key, func(e store.Entry, value []byte) (store.Change, error) {
		// What was there for the first run is not what is there in the end.
		_, _ = edit(store.Entry{Kind: store.Bytes, Expires: store.Never}, []byte("another's"))
		_, _ = edit(store.Entry{}, nil)
		return edit(e, value)
	})
}
