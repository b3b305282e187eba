package grpcapi

import (
	"fmt"
	"strconv"

	"cellserver/internal/command"
	"cellserver/internal/envoy"
)

const (
	shownDomains    = 20 // in INFO
	shownDomainName = 64 // bytes of a name
)

// Info returns the section of INFO about the configuration of Envoys; nothing if there is none.
func Info(current *envoy.Current) []command.InfoPart {
	if current == nil {
		return nil
	}
	return []command.InfoPart{{Section: "Envoy", Write: func(_ *command.Call, out *command.InfoText) {
		config := current.InForce()
		if config == nil {
			config = new(envoy.Config)
		}
		failing := 0
		if current.IsFailing() {
			failing = 1
		}
		out.Add("envoy_domains", config.Domains())
		out.Add("envoy_limits", config.Limits())
		out.Add("envoy_config_failing", failing)
		for i, d := range config.Summary(shownDomains) {
			name := strconv.QuoteToASCII(d.Name[:min(len(d.Name), shownDomainName)])
			out.Add("envoy_domain"+strconv.Itoa(i), fmt.Sprintf("limits=%d,ok=%d,over_limit=%d,name=%s", d.Limits, d.Allowed,
				d.Over, name))
		}
	}}}
}
