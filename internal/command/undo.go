package command

import "cellserver/internal/client"

// Undo is how a family takes back what a client has begun with its commands. Either function may be
// nil.
type Undo struct {
	Reset func(c *Call)                           // at RESET
	Close func(c *client.Client, session Session) // when the connection has ended
}
