package access

import (
	"strings"

	"cellserver/internal/command"
)

// infoNames turns the reasons of ACL LOG into INFO's.
var infoNames = strings.NewReplacer("command", "cmd", "-", "_")

// Info returns the part of INFO about denied calls.
func (as *Accounts) Info() command.InfoPart {
	return command.InfoPart{Section: "Stats", Write: func(_ *command.Call, out *command.InfoText) {
		for why, reason := range reasons {
			if reason != "" {
				out.Add("acl_access_denied_"+infoNames.Replace(reason), as.DeniedLog.denied[why].Load())
			}
		}
	}}
}
