package policy

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
)

// The options HEADER of CL.POLICY TEST describe a request over HTTP. The policy makes the subject from it.

// headersAt is the index of the first word of these options in a call.
const headersAt = 4

// maxHeader is the length of the longest value of a header, in bytes. The policy may name a header several times, so
// the subject may be longer than the call.
const maxHeader = 4096

// testSubject returns the subject of a CL.POLICY TEST. If the call has headers, this is the subject of a request that
// has them, and text is the address of its client.
func testSubject(p *policies.Policy, text []byte, options [][]byte) ([]byte, error) {
	if len(options) == 0 {
		return text, nil
	}
	if p.HTTP.From == nil {
		return nil, command.Refusal("ERR the policy has no from, which makes the subject of headers")
	}
	request, err := requestOf(text, options)
	if err != nil {
		return nil, err
	}
	isHost := func(part policies.Part) bool { return part.Kind == policies.Host }
	if request.Host == "" && slices.ContainsFunc(p.HTTP.From, isHost) {
		return nil, command.Refusal("ERR the header Host is missing: every request has it")
	}
	subject, found := p.HTTP.Subject(nil, request, nil)
	if found == policies.HasHeaders {
		return subject, nil
	}
	problem, outcome := "is missing", "refused"
	if found == policies.RepeatsHeader {
		problem = "is repeated"
	}
	switch p.Otherwise(found) {
	case policies.WithoutShare:
		return []byte(policies.Shared), nil
	case policies.WithoutAllow:
		outcome = "not limited by the policy"
	}
	return nil, command.Refusal(fmt.Sprintf("ERR the header %s %s: such a request is %s", p.HTTP.Lacking(request), problem,
		outcome))
}

// requestOf returns the request of a client with an address, or Shared for one that has none, because it uses a Unix
// socket.
func requestOf(address []byte, options [][]byte) (request policies.Client, err error) {
	headers := http.Header{}
	for ; len(options) > 0; options = options[3:] {
		switch {
		case len(options) < 3 || !command.FoldEqual(options[0], "HEADER"):
			return request, command.ErrSyntaxAt(options[0])
		case len(options[2]) > maxHeader:
			return request, command.Refusal(fmt.Sprintf("ERR the value of a header is longer than %d bytes", maxHeader))
		}
		headers.Add(string(options[1]), string(options[2]))
	}
	request.Host, request.Header = headers.Get("Host"), headers.Values
	if string(address) == policies.Shared {
		return request, nil
	}
	if request.Peer, err = netip.ParseAddr(string(address)); err != nil {
		return request, command.Refusal("ERR with HEADER, the subject is the address of the client, or - if it has none")
	}
	return request, nil
}
