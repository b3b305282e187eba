package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Event is a report that a subject has reached a threshold of a limit.
type Event struct {
	ID        string `json:"id"`   // of the report, to recognize repetitions
	Time      int64  `json:"time"` // Unix milliseconds
	Policy    string `json:"policy"`
	Subject   string `json:"subject"`   // see ShownSubject
	Limit     string `json:"limit"`     // label
	Used      int64  `json:"used"`      // of the limit
	Size      int64  `json:"size"`      // of the limit
	Threshold int64  `json:"threshold"` // percent
	Resets    int64  `json:"resets"`    // when the limit is full again, if nothing more is taken: Unix milliseconds
	Shadow    bool   `json:"shadow"`    // the policy is in shadow mode
}

// JSON returns the event as one line of JSON.
func (e *Event) JSON() []byte {
	text, _ := json.Marshal(e) // it has only texts and numbers
	return text
}

// EventChannel returns the channel on which the events of a policy are published.
func EventChannel(policy string) string { return "cell:events:" + policy }

// ShownSubject returns a subject as events show it: as it is, or, if it has more than 256 bytes, %# and its SHA-256, as
// in keys. JSON shows bytes that are not UTF-8 as U+FFFD.
func ShownSubject(subject []byte) string {
	if len(subject) > maxWritten {
		sum := sha256.Sum256(subject)
		return "%#" + hex.EncodeToString(sum[:])
	}
	return string(subject)
}
