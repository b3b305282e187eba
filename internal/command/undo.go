package command

import "cellserver/internal/client"

// Undo ends what a client has begun with the commands of a family, such as subscriptions. Either function
// may be nil.
type Undo struct {
	Reset func(c *Call)                           // at RESET
	Close func(c *client.Client, session Session) // when the connection has ended
}
