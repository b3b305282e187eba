package command

import "cellserver/internal/client"

// Cleanup ends the states that a client has entered by commands of a family, such as subscriptions.
// Either function may be nil.
type Cleanup struct {
	Reset func(c *Call)                           // at RESET
	Close func(c *client.Client, session Session) // after the connection has ended
}
