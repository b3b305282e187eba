package access

import (
	"strings"

	"cellserver/internal/command"
)

// Info returns the part of INFO about denied calls.
func (as *Accounts) Info() command.InfoPart {
	return command.InfoPart{Section: "Stats", Write: func(_ *command.Call, out *command.InfoText) {
		for why, reason := range reasons {
			if reason != "" {
				out.Add("acl_access_denied_"+strings.Replace(reason, "command", "cmd", 1), as.DeniedLog.denied[why].Load())
			}
		}
	}}
}
