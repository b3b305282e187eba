package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"cellserver/internal/store/remote/combine"
)

// askSentinels is the time between two questions to the Sentinels. After a failover, the old primary
// usually closes its connections. But if it is cut off from the Sentinels alone, it does not know that
// there was a failover.
const askSentinels = time.Second

// sentinels is the topology of a primary that Sentinels watch. It has one number, whichever server
// is the primary.
type sentinels struct {
	backend *Backend
	number  combine.Primary
	all     []combine.Primary    // the one primary
	current chan *sentinelClient // the Sentinel that has answered last, or nil; holds one element

	failover  failover
	followed  map[string]context.CancelFunc // of the Sentinels that are listened to, by address
	following sync.WaitGroup
}

// sentinelClient is a connection to one Sentinel.
type sentinelClient struct {
	node           string
	user, password string // empty if it does not ask for a password
	socket         *socket
	client         *redis.Client
}

func newSentinels(b *Backend) *sentinels {
	number := b.numberOf(b.config.Address.String())
	s := &sentinels{backend: b, number: number, all: []combine.Primary{number}, current: make(chan *sentinelClient, 1),
		followed: map[string]context.CancelFunc{}}
	s.current <- nil
	return s
}

func (s *sentinels) primary(string) combine.Primary { return s.number }
func (s *sentinels) primaries() []combine.Primary   { return s.all }
func (s *sentinels) moved(int, string)              {}
func (s *sentinels) lost(combine.Primary)           {}
func (s *sentinels) probeSlot(combine.Primary) int  { return 0 }
func (s *sentinels) held() <-chan struct{}          { return s.failover.held() }

// address returns where the primary listens. During a failover it waits for the new one.
func (s *sentinels) address(ctx context.Context, _ combine.Primary) (string, error) {
	if over := s.held(); over != nil {
		select {
		case <-over:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	answer, err := s.answer(ctx)
	return s.failover.primary(answer, s.backend.config.Now()), err
}

// answer asks the Sentinels for the primary: first the Sentinel that has answered last, then all
// Sentinels in the order of the URL.
func (s *sentinels) answer(ctx context.Context) (string, error) {
	var known *sentinelClient
	select {
	case known = <-s.current:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { s.current <- known }()
	if known != nil {
		if address, err := s.ask(ctx, known); err == nil {
			return address, nil
		}
		known.close()
		known = nil
	}
	var errs []error
	for _, node := range s.backend.config.Address.Nodes {
		client, err := s.connect(ctx, node)
		if err == nil {
			address, err2 := s.ask(ctx, client)
			if err2 == nil {
				known = client
				return address, nil
			}
			client.close()
			err = err2
		}
		errs = append(errs, fmt.Errorf("%s: %w", node, err))
	}
	return "", fmt.Errorf("no Sentinel says which server is the primary: %w", errors.Join(errs...))
}

// connect connects to a Sentinel. It gets a share of the time, so that a Sentinel that does not answer
// leaves time for the others. Sentinels often have no password although the servers have one, so the
// password is sent only to a Sentinel that asks for it.
func (s *sentinels) connect(ctx context.Context, node string) (*sentinelClient, error) {
	b := s.backend
	ctx, cancel := context.WithTimeout(ctx, b.config.Silence/2)
	defer cancel()
	secure, err := b.tls()
	if err != nil {
		return nil, err
	}
	for _, authenticate := range []bool{false, true} {
		user, password := "", ""
		if authenticate {
			if password, err = b.password(); err != nil {
				return nil, err
			}
			user = b.config.Address.User
		}
		conn, err := dial(ctx, "tcp", node, secure, b.config.Now)
		if err != nil {
			return nil, err
		}
		client := &sentinelClient{node: node, user: user, password: password, socket: conn,
			client: newClient(conn, user, password, 0, b.config)}
		err = client.client.Ping(ctx).Err()
		if err == nil {
			return client, nil
		}
		client.close()
		if _, word := classify(err.Error()); word != "NOAUTH" || authenticate {
			return nil, err
		}
	}
	return nil, nil // not reached
}

// ask asks a Sentinel for the address of the primary.
func (s *sentinels) ask(ctx context.Context, client *sentinelClient) (string, error) {
	master := s.backend.config.Address.Master
	reply, err := client.client.Do(ctx, "sentinel", "get-master-addr-by-name", master).StringSlice()
	switch {
	case errors.Is(err, redis.Nil):
		return "", fmt.Errorf("it does not know a primary of the name %.100q", master)
	case err != nil:
		return "", err
	case len(reply) != 2:
		return "", fmt.Errorf("its reply is %.100q", reply)
	}
	return net.JoinHostPort(reply[0], reply[1]), nil
}

func (c *sentinelClient) close() {
	_ = c.client.Close() // closes the socket, if it was used
	_ = c.socket.Close()
}

// watch listens to all Sentinels. It also asks them once a second, and closes connections to servers that are not
// the primary any more.
func (s *sentinels) watch(ctx context.Context) {
	defer s.following.Wait()
	s.followAll(ctx, nil)
	ticker := time.NewTicker(askSentinels)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			if known := <-s.current; known != nil {
				known.close()
			}
			s.current <- nil
			return
		case <-ticker.C:
		}
		if address, err := s.address(ctx, s.number); err == nil {
			s.backend.disconnect(s.number, address)
			s.discover(ctx)
		}
	}
}
