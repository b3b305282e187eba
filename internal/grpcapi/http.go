package grpcapi

import (
	"context"
	"io"
	"net"
	"net/http"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"cellserver/internal/web"
)

const (
	maxHTTPConns = 256
	maxBody      = 64 << 10 // bytes of a request in JSON
)

// NewHTTP returns a server for the paths that the original has for HTTP: /json, with requests and answers in JSON,
// /healthcheck, and for peers on this machine /rlconfig, with the limits in force.
func (s *Server) NewHTTP() *web.Server {
	paths := http.NewServeMux()
	paths.HandleFunc("/json", s.serveJSON)
	paths.HandleFunc("/healthcheck", s.serveHealth)
	paths.HandleFunc("/rlconfig", s.serveConfig)
	return web.New(web.Config{Name: "envoy-http-port", Log: s.config.Log, MaxConns: maxHTTPConns, MaxBody: maxBody,
		Protected: s.config.Protected, Handler: paths, Turns: s.config.Turns,
		Unauthenticated: s.instance.Unauthenticated(), ConnContext: s.openHTTP, ConnClosed: s.closeHTTP})
}

// httpKey is the key of a request's *conn in its context.
type httpKey struct{}

func (s *Server) openHTTP(ctx context.Context, socket net.Conn) context.Context {
	c := &conn{Conn: socket, server: s, isTrusted: true}
	s.overHTTP.Store(socket, c)
	return context.WithValue(ctx, httpKey{}, c)
}

func (s *Server) closeHTTP(socket net.Conn) {
	if c, found := s.overHTTP.LoadAndDelete(socket); found {
		c.(*conn).leave()
	}
}

// serveJSON answers with 200, or 429 if the request is over a limit; every error is 400, as in the original.
func (s *Server) serveJSON(w http.ResponseWriter, r *http.Request) {
	peer := web.Peer(r)
	if r.Header["Origin"] != nil || peer.IsValid() && !isIn(s.config.Settings.Trusted, peer) {
		http.Error(w, "peers that are not in --grpc-trusted, and web pages, may not ask", http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(r.Body)
	request := new(pb.RateLimitRequest)
	if err == nil {
		err = protojson.Unmarshal(body, request)
	}
	var answer *pb.RateLimitResponse
	if err == nil {
		answer, err = s.decide(r.Context(), r.Context().Value(httpKey{}).(*conn), request)
	}
	var text []byte
	if err == nil {
		text, err = protojson.Marshal(answer)
	}
	if err != nil {
		http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text) // an error means that the peer is gone
}

// serveHealth answers with 200, or with 500 while the server should not be asked.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if !s.healthy.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, "OK")
}

func (s *Server) serveConfig(w http.ResponseWriter, r *http.Request) {
	if !web.IsLocal(r) || web.IsRebound(r) {
		http.Error(w, "the limits are for users on this machine, and not for web pages", http.StatusForbidden)
		return
	}
	if config := s.config.InForce(); config != nil {
		config.Dump(w)
	}
}
