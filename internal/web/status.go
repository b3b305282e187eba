package web

import (
	"net/http"
	"strings"
)

// StatusOf returns the status of a response whose only call got an error reply, given its text. The
// first word of the text is its code.
func StatusOf(errorReply string) int {
	switch code, _, _ := strings.Cut(errorReply, " "); code {
	case "NOPERM":
		return http.StatusForbidden
	case "LOADING", "OOM", "MISCONF", "STOREDOWN", "STOREBUSY", "STOREUNSURE", // at present
		"NOREPLICAS", "CLUSTERDOWN", "BUSY": // so is what a store refuses in these words
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}
