package tracking

import (
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Info returns the part of INFO about CLIENT TRACKING.
func (t *Table) Info() []command.InfoPart {
	return []command.InfoPart{
		{Section: "Clients", Write: func(_ *command.Call, out *command.InfoText) {
			out.Add("tracking_clients", t.Figures().Clients)
		}},
		{Section: "Stats", Write: func(_ *command.Call, out *command.InfoText) {
			figures := t.Figures()
			out.Add("tracking_total_keys", figures.Keys)
			out.Add("tracking_total_items", figures.Items)
			out.Add("tracking_total_prefixes", figures.Prefixes)
		}},
	}
}

// Cleanup ends CLIENT TRACKING for a client.
func (t *Table) Cleanup() command.Cleanup {
	return command.Cleanup{
		Reset: func(c *command.Call) { t.setCallTracker(c, nil) },
		Close: func(c *client.Client, _ command.Session) { t.setTracker(c, nil) },
	}
}
