package commands

// Long replies that are made beside the loop, as KEYS makes them. Many clients may ask for one at once; made side by side, all of
// them would be in memory together. So one at a time gets long, and the others wait, in order, with little.

// longReply is how many bytes of a reply may be made beside others.
const longReply = 256 << 10

// keep counts bytes of a reply that is being made, as they come. It may wait for its turn; its error ends the call.
func (c *Call) keep(bytes int) error {
	if c.Session != nil || c.client == nil || c.inTransaction {
		return nil // in a transaction replies have another bound; and nothing may wait, whose keys are locked
	}
	c.kept += bytes
	c.client.chargeAside(bytes)
	if c.kept <= longReply || c.isLong {
		return nil
	}
	in := c.instance
	in.slow.leave() // others may have the place meanwhile
	defer in.slow.take(begun)
	select {
	case in.long <- struct{}{}:
		c.isLong = true
		return nil
	case <-c.Context.Done():
		return errStopped
	}
}

// keepNoMore is for when the reply was delivered: then it is the mailbox's.
func (c *Call) keepNoMore() {
	if c.isLong {
		<-c.instance.long
	}
	if c.client != nil {
		c.client.chargeAside(-c.kept)
	}
	c.kept, c.isLong = 0, false
}
