package replay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// names shows subjects as they are, or hides them: it then shows a part of their HMAC, with a key that is made for this
// report and not kept. A hash without a key would not hide addresses, because somebody could hash all of them.
type names struct {
	key []byte // nil shows them
}

func newNames(hide bool) *names {
	if !hide {
		return &names{}
	}
	n := &names{key: make([]byte, sha256.Size)}
	_, _ = rand.Read(n.key) // it ends the program if it fails
	return n
}

// maxName is the number of bytes of a subject that a report shows.
const maxName = 200

// show returns a subject as a report shows it. A subject that a terminal would not print as it is, is quoted.
func (n *names) show(subject string) string {
	if n.key != nil {
		mac := hmac.New(sha256.New, n.key)
		mac.Write([]byte(subject))
		return "#" + hex.EncodeToString(mac.Sum(nil)[:6])
	}
	if len(subject) > maxName {
		subject = subject[:maxName] + "..."
	}
	if quoted := strconv.QuoteToGraphic(subject); quoted[1:len(quoted)-1] != subject ||
		strings.TrimSpace(subject) == "" {
		return quoted
	}
	return subject
}
