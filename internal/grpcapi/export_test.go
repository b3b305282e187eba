package grpcapi

// Held returns the memory of all requests, in bytes.
func (s *Server) Held() int64 { return s.memory.bytes.Load() }

// Places returns the number of connections that have a place.
func (s *Server) Places() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// HeldByClosed returns the part of Held of connections that are closed.
func (s *Server) HeldByClosed() int64 { return s.memory.closed.Load() }
