package command

// Allocate announces bytes that the call is about to allocate beyond what its words hold, because it
// decompresses or copies. It returns the function that ends this, when they have been allocated. If
// that is nil, the call must return the error, which is nil if the call is repeated outside the event
// loop: there, garbage is collected before maxmemory refuses a call.
func (c *Call) Allocate(bytes int) (release func(), err error) {
	room, size := c.Server.Room, int64(bytes)
	outside := c.Session == nil && !c.InTransaction
	switch {
	case room.Reserve(size, outside):
		return func() { room.Release(size) }, nil
	case c.Session != nil && !c.InTransaction:
		c.Session.Offload()
		return nil, nil
	}
	return nil, errOutOfMemory
}
