package server

import "context"

// Beat returns when each event loop has taken a turn, or when ctx is done, with its error: a loop that is stuck
// never answers. Without event loops there is nothing to wait for.
func (s *Server) Beat(ctx context.Context) error { return s.transport.beat(ctx) }
