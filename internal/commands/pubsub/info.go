package pubsub

import (
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Info returns the part of INFO about subscriptions.
func (cs *Channels) Info() []command.InfoPart {
	return []command.InfoPart{
		{Section: "Clients", Write: func(_ *command.Call, out *command.InfoText) {
			out.Add("pubsub_clients", cs.Clients.Load())
		}},
		{Section: "Stats", Write: func(_ *command.Call, out *command.InfoText) {
			out.Add("pubsub_channels", cs.Count(client.ToChannel))
			out.Add("pubsub_patterns", cs.Count(client.ToPattern))
			out.Add("pubsubshard_channels", cs.Count(client.ToShardChannel))
		}},
	}
}

// Cleanup ends the client's subscriptions.
func (cs *Channels) Cleanup() command.Cleanup {
	return command.Cleanup{
		Reset: func(c *command.Call) { cs.unsubscribeAll(c.Client, c.Session.(Session)) },
		Close: func(c *client.Client, session command.Session) { cs.unsubscribeAll(c, session.(Session)) },
	}
}
