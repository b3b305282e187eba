package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"cellserver/internal/client"
	"cellserver/internal/policy"
	"cellserver/internal/web"
)

// Requests of gateways: ANY /v1/auth/{policy}[,{policy}...][/rest]. Before a gateway passes on a request of its
// client, it sends a request of its own, and waits for status 200. Most gateways send the client's header, method
// and path along; some announce the client's body and do not send it.
//
// The answer is never 401 or 404, which gateways would show to their clients. The header Authorization is the
// client's, and is ignored: the server answers the gateways that it trusts, and no other peers.

// maxPolicies bounds the policies of a request.
const maxPolicies = 16

// ask is a policy that a request asks, about a subject.
type ask struct {
	policy  *policy.Policy
	name    string
	subject string
}

// auth answers the request of a gateway. rest is the path after /v1/auth/.
func (a *API) auth(w http.ResponseWriter, r *http.Request, rest string) {
	ignoreBody(w, r)
	limited := http.StatusTooManyRequests
	if strings.Contains(r.URL.RawQuery, "limited=403") && r.URL.Query().Get("limited") == "403" {
		limited = http.StatusForbidden
	}
	trusted, as := a.trustedBy(r)
	if as == nil {
		a.counts.untrusted.Add(1)
		a.warned.Do(func() {
			a.config.Log.Warn("a peer that is not in --http-trusted-proxies asked /v1/auth, and was refused", "peer", r.RemoteAddr)
		})
		writeError(w, http.StatusForbidden, "ERR this peer is not one of the trusted proxies (--http-trusted-proxies)")
		return
	}
	// Requests of web pages for other paths have the header Origin, see authorize.
	if web.IsRebound(r) {
		a.counts.untrusted.Add(1)
		writeError(w, http.StatusForbidden, "ERR the request names this server as the page of a stranger could: "+
			"use its address, or a name without dots")
		return
	}
	names, _, _ := strings.Cut(rest, "/")
	var buffer [2]ask
	asks, refused := a.asksOf(buffer[:0], r, names, trusted)
	switch {
	case refused == withoutSubject:
		w.Header()["X-Limited"] = yes
		writeError(w, limited, refused)
	case refused != "":
		a.answerWithout(w, asks, refused)
	case len(asks) == 0: // its policies allow requests without their headers
		w.WriteHeader(http.StatusOK)
	default:
		a.decide(w, r, as, asks, limited)
	}
}

var yes = []string{"1"}

const (
	withoutSubject = "ERR the request has no header that the policy needs, or has it twice"
	longSubject    = "ERR the subject is longer than max-key-size, proto-max-bulk-len or client-query-buffer-limit allow"
	noSubject      = "ERR the policy does not say what the subject of a request is: it has no field from"
)

// ignoreBody arranges that the response does not wait for the body of the request, which may never come. The
// connection is closed after the response; what arrives of the body until then is discarded, for a second.
func ignoreBody(w http.ResponseWriter, r *http.Request) {
	const patience = time.Second
	if r.Body == http.NoBody || r.ProtoMajor != 1 {
		return
	}
	c := http.NewResponseController(w)
	_ = c.EnableFullDuplex() // HTTP/1 has it
	w.Header()["Connection"] = []string{"close"}
	time.AfterFunc(patience, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
}

// trustedBy returns the account as which the request of a peer is made, nil if the peer is not trusted: a proxy of
// the option, a process that reaches the Unix socket, or a peer with a certificate. If certificates name users, it
// gives the rights of its user and no others. trustedBy also returns the networks whose X-Forwarded-For is believed.
func (a *API) trustedBy(r *http.Request) (trusted []netip.Prefix, as *client.Account) {
	trusted, peer := a.config.Settings.TrustedProxies, web.Peer(r)
	switch {
	case !peer.IsValid() || slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer) }):
		return trusted, a.gateways
	case r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		as = a.gateways
		if a.config.NamesUsers != nil && a.config.NamesUsers() {
			as = web.NamedUser(r, a.instance.Accounts, a.named(r))
		}
		return append(slices.Clip(trusted), netip.PrefixFrom(peer, peer.BitLen())), as
	}
	return nil, nil
}

// isGateway reports whether an address belongs to a trusted proxy alone: every process of this machine has a loopback
// address.
func (a *API) isGateway(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return true // it reaches the Unix socket
	}
	peer := tcp.AddrPort().Addr().Unmap().WithZone("")
	return !peer.IsLoopback() &&
		slices.ContainsFunc(a.config.Settings.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// CheckPolicies warns about policies that tell clients apart by their addresses, if only gateways on this machine
// are trusted: all requests of gateways on other machines get 403. Call it whenever other policies are in force.
// NewServer calls it for the first server.
func (a *API) CheckPolicies() {
	isLoopback := func(p netip.Prefix) bool { return p.Addr().IsLoopback() }
	if !allOf(a.config.Settings.TrustedProxies, isLoopback) {
		return
	}
	set := a.config.Policies()
	for _, name := range set.Names() {
		isAddress := func(p policy.Part) bool { return p.Kind == policy.ClientIP }
		if slices.ContainsFunc(set.Policy([]byte(name)).HTTP.From, isAddress) {
			a.config.Log.Warn("a policy has {client_ip}, and only gateways on this machine are trusted: "+
				"--http-trusted-proxies names others", "policy", name)
			return
		}
	}
}

func allOf[T any](list []T, has func(T) bool) bool {
	return !slices.ContainsFunc(list, func(item T) bool { return !has(item) })
}

// asksOf appends an ask for each policy that a request names. If there can be no decision, refused says why.
func (a *API) asksOf(asks []ask, r *http.Request, names string, trusted []netip.Prefix) (_ []ask, refused string) {
	set := a.config.Policies()
	if strings.Count(names, ",") >= maxPolicies {
		return appendRefusing(asks, set, names), "ERR too many policies"
	}
	from := policy.Client{Peer: web.Peer(r), Host: r.Host, Header: func(name string) []string { return r.Header[name] }}
	var buffer [256]byte
	for name := range strings.SplitSeq(names, ",") {
		p := set.Policy([]byte(name))
		if p == nil {
			refused = "ERR no such policy '" + name[:min(len(name), policy.MaxNameBytes)] + "'"
			continue
		}
		if slices.ContainsFunc(asks, func(asked ask) bool { return asked.policy == p }) {
			continue // CL.ALL takes a key once
		}
		subject, found := p.HTTP.Subject(buffer[:0], from, trusted)
		if p.HTTP.From == nil {
			refused = noSubject
		} else if found != policy.HasHeaders {
			switch p.Otherwise(found) {
			case policy.WithoutShare:
				subject = append(buffer[:0], policy.Shared...)
			case policy.WithoutAllow:
				continue
			default:
				return nil, withoutSubject
			}
		}
		asks = append(asks, ask{p, name, string(subject)})
	}
	return asks, refused
}

// appendRefusing appends an ask for the first named policy that refuses requests without a decision.
func appendRefusing(asks []ask, set *policy.Set, names string) []ask {
	for name := range strings.SplitSeq(names, ",") {
		if p := set.Policy([]byte(name)); p != nil && p.HTTP.Errors == policy.ErrorsRefuse {
			return append(asks, ask{policy: p})
		}
	}
	return asks
}
