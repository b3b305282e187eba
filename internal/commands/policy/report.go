package policy

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"strconv"
	"sync/atomic"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
)

// Reports says what happens when a subject has reached a threshold of a policy with notify.
type Reports struct {
	Log *slog.Logger // of lines that clients cause, and whose number is bounded
	// Publish publishes a message on a channel. Listened reports whether any client may get it.
	Publish  func(c *command.Call, channel string, payload []byte)
	Listened func() bool
	Lost     func() int64                 // messages that could not be published
	Post     func(id string, body []byte) // posts a report soon; nil if there is no webhook

	run    string       // a random prefix of the IDs of this process
	number atomic.Int64 // of the latest report
}

// Begin chooses the prefix of IDs.
func (r *Reports) Begin() {
	var id [8]byte
	rand.Read(id[:]) // never fails: crypto/rand ends the process rather than return weak bytes
	r.run = hex.EncodeToString(id[:])
}

// Report is the Report of a decide.Decider.
func (f *Family) Report(c *command.Call, p *policies.Policy, e policies.Event) {
	r := &f.Reports
	f.countsOf(p).AddReport()
	e.ID = r.run + "-" + strconv.FormatInt(r.number.Add(1), 10)
	r.Log.Info("a subject has reached a threshold", "policy", e.Policy, "subject", e.Subject, "limit", e.Limit,
		"threshold", strconv.FormatInt(e.Threshold, 10)+"%", "used", e.Used, "size", e.Size)
	listened := r.Listened()
	if r.Post == nil && !listened {
		return
	}
	text := e.JSON()
	if r.Post != nil {
		r.Post(e.ID, text)
	}
	if listened {
		r.Publish(c, policies.EventChannel(e.Policy), text)
	}
}
