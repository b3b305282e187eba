package transcript

import "time"

// Spaced returns a Stage on whose clock time passes before each step that sends something, as if clients were
// slow: what pause returns. With a real clock, it waits.
func Spaced(s Stage, pause func() time.Duration) Stage { return &spaced{Stage: s, pause: pause} }

type spaced struct {
	Stage
	pause  func() time.Duration
	passed time.Duration
}

// Late implements Stage: no transcript asks for the pauses.
func (s *spaced) Late() time.Duration { return s.Stage.Late() + s.passed }

func (s *spaced) Dial() (Peer, error) {
	p, err := s.Stage.Dial()
	return spacedPeer{p, s}, err
}

type spacedPeer struct {
	Peer
	stage *spaced
}

func (p spacedPeer) Send(b []byte) error {
	by := p.stage.pause()
	p.stage.passed += by
	if err := p.stage.Advance(by); err != nil {
		return err
	}
	return p.Peer.Send(b)
}
