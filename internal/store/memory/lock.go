package memory

// lock takes the shard's lock. Whoever wants to know is told how long it is held.
func (s *shard) lock() {
	s.mu.Lock()
	if s.lockTime != nil {
		s.lockedAt = s.lockTime.Start()
	}
}

// unlock must come from the goroutine that locked.
func (s *shard) unlock() {
	if s.lockTime != nil {
		s.lockTime.Stop(s.lockedAt)
	}
	s.mu.Unlock()
}
