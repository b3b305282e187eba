package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// proxy is between the suite and a server, and records which commands each test sends. The suite
// marks the beginning of a test: DEBUG LOG "### Starting test <name> in <file>".
type proxy struct {
	listener net.Listener
	server   string // its address
	order    *order
	resp3    bool // begin every connection with HELLO 3, and do not forward its reply

	mu      sync.Mutex
	current test
	sent    map[test]map[string]bool
}

func listen(server int, resp3 bool) (*proxy, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o, err := newOrder()
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, order: o, server: net.JoinHostPort("127.0.0.1", strconv.Itoa(server)), resp3: resp3,
		sent: map[test]map[string]bool{}}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			go p.serve(client.(*net.TCPConn))
		}
	}()
	return p, nil
}

func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *proxy) close() { p.listener.Close() }

// recorded returns the commands that each test has sent.
func (p *proxy) recorded() map[test]map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

func (p *proxy) serve(client *net.TCPConn) {
	defer client.Close()
	conn, err := net.Dial("tcp4", p.server)
	if err != nil {
		return
	}
	server := conn.(*net.TCPConn)
	defer server.Close()
	replies := bufio.NewReader(server)
	if p.resp3 {
		if _, err := io.WriteString(server, "HELLO 3\r\n"); err != nil || skipReply(replies) != nil {
			return
		}
	}
	// A call is recorded before the server gets it, because the suite may begin the next test when
	// it has the reply. The copying ends when either side ends, and the server's remaining replies
	// are read.
	ended := make(chan struct{})
	err = p.order.forward(client, io.MultiWriter(&callParser{receive: p.note}, server), func() {
		_ = server.CloseWrite()
		close(ended)
	})
	if err != nil {
		return
	}
	_, _ = io.Copy(client, replies) // ends when either side ends
	_ = client.CloseRead()
	<-ended
}

const begins, in = "### Starting test ", " in tests/"

// note records a call.
func (p *proxy) note(words []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := strings.ToLower(words[0])
	if name == "debug" && len(words) == 3 && strings.HasPrefix(words[2], begins) {
		if at := strings.LastIndex(words[2], in); at > 0 {
			p.current = test{strings.TrimSuffix(words[2][at+len(in):], ".tcl"), words[2][len(begins):at]}
		}
		return
	}
	if p.sent[p.current] == nil {
		p.sent[p.current] = map[string]bool{}
	}
	sent := p.sent[p.current]
	sent[name] = true
	if len(words) > 1 {
		sent[name+"|"+strings.ToLower(words[1])] = true
	}
	if name == "command" && len(words) > 2 { // a question about another command
		sent[strings.ToLower(words[2])] = true
	}
}

// callParser parses the calls in the bytes that a client sends. It stops at the first bytes that are
// not a call.
type callParser struct {
	receive func(words []string)
	bytes   []byte
	stopped bool
}

// maxCallBytes is the size of the largest call that is parsed.
const maxCallBytes = 64 << 20

func (p *callParser) Write(b []byte) (int, error) {
	if p.stopped {
		return len(b), nil
	}
	p.bytes = append(p.bytes, b...)
	for {
		words, rest, err := nextCall(p.bytes)
		if err != nil || len(p.bytes) > maxCallBytes {
			p.stopped, p.bytes = true, nil
			return len(b), nil
		}
		if len(rest) == len(p.bytes) {
			return len(b), nil // the call is not complete yet
		}
		p.bytes = rest
		if len(words) > 0 {
			p.receive(words)
		}
	}
}

// nextCall returns the first call in the bytes, or no words if it is incomplete.
func nextCall(b []byte) (words []string, rest []byte, err error) {
	line, after, complete := bytes.Cut(b, []byte("\n"))
	if !complete {
		return nil, b, nil
	}
	if len(line) == 0 || line[0] != '*' {
		return strings.Fields(string(line)), after, nil
	}
	count, err := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	if err != nil {
		return nil, b, err
	}
	for range count {
		line, body, complete := bytes.Cut(after, []byte("\n"))
		if !complete {
			return nil, b, nil
		}
		if len(line) == 0 || line[0] != '$' {
			return nil, b, fmt.Errorf("not a bulk: %q", line)
		}
		length, err := strconv.ParseUint(strings.TrimSpace(string(line[1:])), 10, 31)
		if err != nil {
			return nil, b, err
		}
		if uint64(len(body)) < length+2 {
			return nil, b, nil
		}
		words, after = append(words, string(body[:length])), body[length+2:]
	}
	return words, after, nil
}

// skipReply reads a reply in RESP3, of the kinds that HELLO returns.
func skipReply(r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:])) // 0 if there is no number, and then no more lines follow
	switch line[0] {
	case '$':
		_, err = r.Discard(n + 2)
		return err
	case '%':
		n *= 2
	case '*':
	default:
		return nil
	}
	for range n {
		if err := skipReply(r); err != nil {
			return err
		}
	}
	return nil
}
