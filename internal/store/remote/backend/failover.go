package backend

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// failover is the state of a change of the primary, as the events of Sentinels describe it.
//
// The old primary continues to acknowledge writes for many seconds after its replica has been promoted, and all of
// these writes are lost. The Sentinels' answers name the new primary only one or two seconds after the promotion. So
// cellserver listens to their events. From the event +selected-slave on, which names the replica and comes before the
// promotion, nothing is sent to the old primary. The replica is used as soon as it says that it is a primary.
type failover struct {
	mu       sync.Mutex
	old, new string        // addresses of the primary and of the replica
	over     chan struct{} // closed when the failover has ended; nil if none is under way
	until    int64         // instant until which the old address means the new one, by the clock of the process
}

const (
	// roleEvery is the time between two questions to a replica that is about to be promoted.
	roleEvery = 10 * time.Millisecond
	// failoverSilence is the longest time that a failover may take from +selected-slave on. A Sentinel promotes the
	// replica within 0.1 s. If nothing has happened after failoverSilence, the old primary is used again.
	failoverSilence = 3 * time.Second
	// remembered is how long an answer that names the old primary is taken to mean the new one. The last Sentinel has
	// been seen to change its answer 2.2 s after the promotion.
	remembered = 10 * time.Second
)

// begin begins a failover. It returns a channel that end closes, or nil if a failover is under way already.
func (f *failover) begin(old, replica string) (over chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over != nil {
		return nil
	}
	f.old, f.new, f.until = old, replica, 0
	f.over = make(chan struct{})
	return f.over
}

// held returns a channel that is closed when the present failover has ended; nil if none is under way.
func (f *failover) held() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// changed notes that the primary has changed.
func (f *failover) changed(old, primary string, now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old, f.new, f.until = old, primary, now+int64(remembered)
}

// end ends the failover, if one is under way.
func (f *failover) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over != nil {
		close(f.over)
		f.over = nil
	}
}

// primary returns the address of the primary, given the address in the answer of a Sentinel.
func (f *failover) primary(answer string, now int64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if answer == f.old && now < f.until {
		return f.new
	}
	return answer
}

// The events that a Sentinel publishes about a failover.
const (
	selectedReplica = "+selected-slave"
	switched        = "+switch-master"
	aborted         = "-failover-abort-"
)

// heard handles an event of a Sentinel about the primary.
//
//	+selected-slave      slave <ip>:<port> <ip> <port> @ <name> <ip> <port>
//	+switch-master       <name> <old ip> <old port> <new ip> <new port>
//	-failover-abort-...  master <name> <ip> <port>
func (s *sentinels) heard(ctx context.Context, event, text string) {
	words, name := strings.Fields(text), s.backend.config.Address.Master
	switch {
	case event == selectedReplica && len(words) == 8 && words[5] == name:
		s.selected(ctx, net.JoinHostPort(words[6], words[7]), net.JoinHostPort(words[2], words[3]))
	case event == switched && len(words) == 5 && words[0] == name:
		s.promoted(net.JoinHostPort(words[1], words[2]), net.JoinHostPort(words[3], words[4]))
	case strings.HasPrefix(event, aborted) && len(words) == 4 && words[1] == name:
		s.failover.end()
	}
}

// selected holds all requests back until the replica has become the primary.
func (s *sentinels) selected(ctx context.Context, old, replica string) {
	over := s.failover.begin(old, replica)
	if over == nil {
		return
	}
	s.backend.config.Log.Info("store: the Sentinels replace the primary", "address", old, "replica", replica)
	s.following.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, failoverSilence)
		defer cancel()
		if s.awaitPromotion(ctx, replica, over) {
			s.promoted(old, replica)
		}
		s.failover.end()
	})
}

// awaitPromotion asks a replica for its role until it is a primary. It returns false if the failover ends before that.
func (s *sentinels) awaitPromotion(ctx context.Context, replica string, over <-chan struct{}) bool {
	var c *connection
	defer func() {
		if c != nil {
			c.close()
		}
	}()
	for {
		if c == nil {
			c, _ = s.backend.dial(ctx, replica, 0)
		}
		if c != nil {
			info := newCommand("info", "replication") // and not ROLE, for which the store's user may have no right
			if c.run(ctx, []redis.Cmder{info}) != nil {
				c.close()
				c = nil
			} else if infoField(info.Cmd, "role") == "master" {
				return true
			}
		}
		select {
		case <-over:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(roleEvery):
		}
	}
}

// promoted uses a new primary. Connections to any other server are closed.
func (s *sentinels) promoted(old, primary string) {
	s.failover.changed(old, primary, s.backend.config.Now())
	s.backend.disconnect(s.number, primary)
	s.failover.end()
}

// follow passes the events of a Sentinel on until ctx ends. While it cannot be reached, the other Sentinels and the
// polling of sentinels.watch replace it.
func (s *sentinels) follow(ctx context.Context, node string, heard func(event, text string)) {
	for ctx.Err() == nil {
		_ = s.listen(ctx, node, heard)
		select {
		case <-ctx.Done():
		case <-time.After(askSentinels):
		}
	}
}

// listen passes the events of a Sentinel on. It returns when the connection ends.
func (s *sentinels) listen(ctx context.Context, node string, heard func(event, text string)) error {
	known, err := s.connect(ctx, node)
	if err != nil {
		return err
	}
	known.close()
	client := s.subscriber(known)
	defer client.Close()
	events := client.PSubscribe(ctx, selectedReplica, switched, aborted+"*")
	defer events.Close()
	defer context.AfterFunc(ctx, func() { _ = events.Close() })()
	for quiet := false; ; {
		message, err := events.ReceiveTimeout(ctx, failoverSilence)
		switch m := message.(type) {
		case *redis.Message:
			heard(m.Channel, m.Payload)
		case nil:
			if !errors.Is(err, os.ErrDeadlineExceeded) || quiet || events.Ping(ctx) != nil {
				return err
			}
		}
		quiet = err != nil
	}
}

// subscriber returns a client that listens to a Sentinel. It logs in with the user and the password of as.
func (s *sentinels) subscriber(as *sentinelClient) *redis.Client {
	b := s.backend
	return redis.NewClient(&redis.Options{
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			secure, err := b.tls()
			if err != nil {
				return nil, err
			}
			return dial(ctx, "tcp", as.node, secure, b.config.Now)
		},
		Protocol: 2, Username: as.user, Password: as.password, MaxRetries: -1, DialerRetries: 1,
		WriteTimeout: b.config.Silence, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// discover asks a Sentinel for the other Sentinels, and listens to them.
func (s *sentinels) discover(ctx context.Context) {
	known := <-s.current
	defer func() { s.current <- known }()
	if known == nil {
		return
	}
	others, err := known.client.Do(ctx, "sentinel", "sentinels", s.backend.config.Address.Master).Slice()
	if err != nil {
		return
	}
	var up, down []string
	for _, other := range others {
		switch address, isDown := readSentinel(other); {
		case address == "":
		case isDown:
			down = append(down, address)
		default:
			up = append(up, address)
		}
	}
	s.followAll(ctx, append(up, down...))
}

// readSentinel reads an item of the reply to SENTINEL SENTINELS. address is empty if it has none.
func readSentinel(item any) (address string, isDown bool) {
	fields, _ := item.([]any)
	var ip, port string
	for i := 0; i+1 < len(fields); i += 2 {
		value, _ := fields[i+1].(string)
		switch fields[i] {
		case "ip":
			ip = value
		case "port":
			port = value
		case "flags":
			isDown = strings.Contains(value, "s_down")
		}
	}
	if ip == "" || port == "" {
		return "", false
	}
	return net.JoinHostPort(ip, port), isDown
}

// maxSentinels bounds the Sentinels that are listened to.
const maxSentinels = 16

// followAll listens to the Sentinels of the URL and to others, up to maxSentinels, and stops listening to all that are
// not among them. Only watch calls it.
func (s *sentinels) followAll(ctx context.Context, others []string) {
	wanted := map[string]bool{}
	for _, node := range slices.Concat(s.backend.config.Address.Nodes, others) {
		if len(wanted) < maxSentinels {
			wanted[node] = true
		}
	}
	for node, stop := range s.followed {
		if !wanted[node] {
			stop()
			delete(s.followed, node)
		}
	}
	for node := range wanted {
		if s.followed[node] == nil {
			one, stop := context.WithCancel(ctx)
			s.followed[node] = stop
			s.following.Go(func() {
				// If the Sentinel that has announced a failover is not followed any more, the failover continues
				// nevertheless.
				s.follow(one, node, func(event, text string) { s.heard(ctx, event, text) })
			})
		}
	}
}
