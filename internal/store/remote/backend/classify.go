package backend

import (
	"net"
	"strconv"
	"strings"
)

// outcome is what an error reply says about the request.
type outcome uint8

const (
	outcomeRefused  outcome = iota // it was not carried out, and would not be if it were sent again
	outcomeMoved                   // MOVED: another server has the slot
	outcomeAsk                     // ASK: another server has the key
	outcomeNoScript                // NOSCRIPT: the server does not know the script
	outcomeLater                   // it was not carried out, and may be later
)

// outcomes lists the first words of error replies after which a request may be sent again, because it
// was not carried out. After all other error replies, such as OOM, NOPERM and MISCONF, it was not
// carried out either, but sending it again would not help.
var outcomes = map[string]outcome{
	"MOVED":       outcomeMoved,
	"ASK":         outcomeAsk,
	"NOSCRIPT":    outcomeNoScript,
	"TRYAGAIN":    outcomeLater,
	"READONLY":    outcomeLater,
	"LOADING":     outcomeLater,
	"CLUSTERDOWN": outcomeLater,
	"MASTERDOWN":  outcomeLater,
}

// classify reads an error reply. It returns the first word, too.
func classify(reply string) (outcome, string) {
	word, _, _ := strings.Cut(reply, " ")
	return outcomes[word], word
}

// unscripted returns the error of a command in a script without what Redis 6.2 puts before it, as in
// "@user_script: 41: -READONLY You can't write against a read only replica.".
func unscripted(reply string) string {
	rest, found := strings.CutPrefix(reply, "@user_script: ")
	if !found {
		return reply
	}
	line, rest, found := strings.Cut(rest, ": ")
	if _, err := strconv.Atoi(line); err != nil || !found {
		return reply
	}
	return strings.TrimSpace(strings.TrimPrefix(rest, "-"))
}

func isNoScript(err error) bool {
	if err == nil {
		return false
	}
	kind, _ := classify(err.Error())
	return kind == outcomeNoScript
}

// readRedirection reads what follows MOVED and ASK: a slot, and the address of a server. A server that
// does not know its own host leaves the host out: then it is the host that was asked.
func readRedirection(reply, asked string) (slot int, address string, ok bool) {
	words := strings.Fields(reply)
	if len(words) != 3 {
		return 0, "", false
	}
	slot, err := strconv.Atoi(words[1])
	if err != nil || slot < 0 || slot >= Slots {
		return 0, "", false
	}
	address = nodeAddress(words[2], asked)
	return slot, address, address != ""
}

// nodeAddress completes the address of a node that the server at another address has given. It is
// empty if the node's host is unknown.
func nodeAddress(given, asked string) string {
	colon := strings.LastIndexByte(given, ':')
	if colon < 0 {
		return ""
	}
	host, port := strings.Trim(given[:colon], "[]"), given[colon+1:]
	switch host {
	case "?":
		return ""
	case "":
		host, _, _ = net.SplitHostPort(asked) // every address has a port
	}
	return net.JoinHostPort(host, port)
}
