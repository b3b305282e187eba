// Package xds gets the configuration of Envoy's rate limits from a control plane, such as Envoy Gateway, by the
// state-of-the-world variant of Envoy's discovery protocol. There is one stream. Whenever a resource changes, the
// control plane sends all resources on it, and the client accepts or refuses them as a whole.
package xds

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"

	"cellserver/internal/envoy"
)

// typeURL is the type of the resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

const (
	maxReason  = 4096                   // bytes of the reason for which resources are refused
	firstPause = 200 * time.Millisecond // before the next attempt, give or take a half
	maxPause   = 30 * time.Second
	pingAfter  = 6 * time.Minute // of silence: servers allow a ping in five minutes
	pingTime   = 20 * time.Second
)

// Client keeps a configuration up to date with a control plane.
type Client struct {
	settings *Settings
	node     *core.Node
	headers  metadata.MD
	current  *envoy.Current
	log      *slog.Logger

	accepted  string // the version that was accepted last
	isSilent  bool   // a warning has said that the control plane cannot be reached
	first     chan struct{}
	closeOnce sync.Once

	rest func(ctx context.Context, pause time.Duration) // waits between attempts
}

// New returns a client that applies what it receives to a configuration. It returns an error if the settings are wrong.
func New(s *Settings, current *envoy.Current, log *slog.Logger) (*Client, error) {
	c := &Client{settings: s, current: current, log: log, first: make(chan struct{}), rest: rest}
	var err error
	if c.node, err = s.node(); err != nil {
		return nil, err
	}
	if c.headers, err = s.headers(); err != nil {
		return nil, err
	}
	if s.TLS == "yes" {
		_, err = s.Files.Config()
	}
	return c, err
}

// First returns a channel that is closed when the control plane has sent its first configuration, even if that was
// refused.
func (c *Client) First() <-chan struct{} { return c.first }

// Run receives configurations until ctx is done. When the control plane ends a stream, or cannot be reached, the
// configuration in force stays, and Run tries again, at growing intervals.
func (c *Client) Run(ctx context.Context) {
	conn, err := c.dial()
	if err != nil {
		c.log.Error("the address of --envoy-xds is not valid", "address", c.settings.Address, "error", err)
		return
	}
	defer conn.Close()
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		received, err := c.watch(ctx, conn)
		if received {
			pause = firstPause
		}
		if ctx.Err() == nil && !c.isSilent {
			c.isSilent = true
			c.log.Warn("the control plane of --envoy-xds cannot be asked: what is in force stays",
				"address", c.settings.Address, "error", err)
		}
		c.rest(ctx, pause/2+rand.N(pause)) // so that servers do not all come at once
	}
}

func rest(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

func (c *Client) dial() (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if c.settings.TLS == "yes" {
		security = fromFiles{security, c.settings}
	}
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay, reconnect.MaxDelay = firstPause, maxPause
	return grpc.NewClient(c.settings.Address, grpc.WithTransportCredentials(security),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: maxPause}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTime}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.settings.MaxMessage)))
}

// watch receives configurations on a stream until it ends. It reports whether there were any.
func (c *Client) watch(ctx context.Context, conn *grpc.ClientConn) (received bool, err error) {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, c.headers))
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	next := &discovery.DiscoveryRequest{TypeUrl: typeURL, Node: c.node, VersionInfo: c.accepted}
	for {
		if err := stream.Send(next); err != nil {
			_, err = stream.Recv() // the reason
			return received, err
		}
		response, err := stream.Recv()
		if err != nil {
			return received, err
		}
		received = true
		if c.isSilent {
			c.isSilent = false
			c.log.Info("the control plane of --envoy-xds answers again", "address", c.settings.Address)
		}
		next = c.answer(response)
	}
}

// answer applies resources, and returns the request that accepts or refuses them.
func (c *Client) answer(r *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	answer := &discovery.DiscoveryRequest{TypeUrl: typeURL, Node: c.node, ResponseNonce: r.GetNonce()}
	messages, err := messagesIn(r.GetResources())
	if err != nil {
		c.current.Refuse(err)
	} else {
		err = c.current.Receive(messages)
	}
	if err == nil {
		c.accepted = r.GetVersionInfo()
	} else {
		reason := err.Error()
		answer.ErrorDetail = &rpcstatus.Status{
			// a message that is cut within a character could not be sent
			Code: int32(codes.InvalidArgument), Message: strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""),
		}
	}
	answer.VersionInfo = c.accepted
	c.closeOnce.Do(func() { close(c.first) })
	return answer
}

func messagesIn(resources []*anypb.Any) ([]*pb.RateLimitConfig, error) {
	messages := make([]*pb.RateLimitConfig, len(resources))
	for i, resource := range resources {
		messages[i] = new(pb.RateLimitConfig)
		if err := resource.UnmarshalTo(messages[i]); err != nil {
			return nil, fmt.Errorf("resource %d of %d: %w", i+1, len(resources), err)
		}
	}
	return messages, nil
}
