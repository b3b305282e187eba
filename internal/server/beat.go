package server

import "context"

// Beat returns nil when each event loop has taken a turn. A stuck loop never does: then Beat returns the
// error of ctx when ctx is done. Without event loops, Beat returns nil at once.
func (s *Server) Beat(ctx context.Context) error { return s.transport.beat(ctx) }
