// Package hostile attacks cellserver with what broken and malicious clients send. The attacks are
// used by the tests of this package and by the soak.
package hostile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// patience is the timeout of every wait. It is long because a test machine may be busy.
const patience = time.Minute

// Attack is one kind of malicious traffic. It opens a few connections, ends soon by itself, and
// leaves no key behind. It returns an error if the server tears a reply, or neither answers nor
// disconnects.
type Attack struct {
	Name string
	Run  func(addr string, random *rand.Rand) error
}

// Attacks returns all kinds of attack.
func Attacks() []Attack {
	return []Attack{
		{"a stream cut off", cutOffAttack},
		{"a stream with a byte changed", changed},
		{"lengths that lie", lie},
		{"random bytes", garbage},
		{"another protocol", otherProtocol},
		{"one byte, and silence", silence},
		{"replies that nobody reads", unread},
		{"a reset in the middle of a reply", resetInReply},
		{"KEYS again and again, and a reset", keysAndGone},
		{"long answers, pipelined", floodOnce},
		{"connections that come and go", churn},
	}
}

// Command returns a call in RESP.
func Command(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

// valid returns a stream of about 150 bytes with a bit of everything: arrays, inline lines, quotes,
// empty lines that are ignored, and a command that replies later.
func valid() []byte {
	var b []byte
	b = append(b, Command("CL.THROTTLE", "k", "15", "30", "60", "PEEK")...)
	b = append(b, "ECHO \"a\\x20b\" \r\n\r\n*0\r\n*-1\r\n"...)
	b = append(b, Command("KEYS", "nosuch")...)
	b = append(b, "get 'k'\n"...)
	return append(b, Command("HELLO", "3")...)
}

// falseLengths returns calls with impossible lengths.
func falseLengths() (list []string) {
	numbers := []string{
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615", "99999999999999999999",
		"2147483647", "2147483648", "4294967296", "1048577", "-1", "-5", "+1", "01", "", " 1", "1 ", "0x10", "1e3",
	}
	for _, n := range numbers {
		list = append(list, "*"+n+"\r\n$4\r\nPING\r\n", "*1\r\n$"+n+"\r\nabc\r\n", "*2\r\n$4\r\nECHO\r\n$"+n+"\r\nabc\r\n",
			"*1\r\n$4\r\nPING\r\n*"+n+"\r\n", "*"+n+"\r\n$"+n+"\r\n")
	}
	return list
}

// otherProtocols are the first bytes of other protocols.
var otherProtocols = []string{
	"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nCL.THROTTLE k 1 1 1000\r\n",
	"Host: localhost\r\nCL.THROTTLE k 1 1 1000\r\n",
	"GET / HTTP/1.1\r\nAccept: */*\r\n\r\n",
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x5a", 64) +
		"\x00\x20\x13\x02\x13\x03\x13\x01\x00\xff\x01\x00", // TLS
	"SSH-2.0-OpenSSH_9.9\r\n",
	"\x00\x00\x00\x08\x04\xd2\x16\x2f", // PostgreSQL asks for TLS
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}

// dial connects, with a deadline for everything on the connection.
func dial(addr string) (*peer.Conn, error) {
	conn, err := peer.Dial(addr)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

// duplex is a connection whose two directions can be closed separately: TCP or a Unix socket.
type duplex interface {
	net.Conn
	CloseWrite() error
}

// answers sends everything, closes its sending direction, and reads to the end. It returns an error if a reply is
// torn, or if a reply follows a protocol error. If the server has not read all input, the connection is reset,
// which may discard replies or a part of one.
func answers(conn duplex, sent []byte) (replies []string, err error) {
	defer conn.Close()
	if _, err := conn.Write(sent); err == nil {
		_ = conn.CloseWrite() // fails if the server has disconnected
	}
	r := bufio.NewReader(conn)
	for {
		if _, err := r.Peek(1); err != nil {
			return replies, unlessReset(err)
		}
		reply, err := transcript.ReadReply(r)
		switch {
		case isReset(err):
			return replies, nil
		case err != nil:
			return replies, fmt.Errorf("torn reply after %q, to %q: %w", replies, sent, err)
		case len(replies) > 0 && strings.Contains(replies[len(replies)-1], "ERR Protocol error"):
			return replies, fmt.Errorf("a reply after a protocol error: %q %q, to %q", replies, reply, sent)
		}
		replies = append(replies, reply)
	}
}

// isReset reports whether an error means that the server has reset the connection.
func isReset(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "connection reset") ||
		strings.Contains(err.Error(), "broken pipe"))
}

func unlessReset(err error) error {
	if errors.Is(err, io.EOF) || isReset(err) {
		return nil
	}
	return err
}

// play sends bytes on a new connection.
func play(addr string, sent []byte) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	_, err = answers(conn, sent)
	return err
}

func cutOffAttack(addr string, random *rand.Rand) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	b := valid()
	_, err = conn.Write(b[:random.IntN(len(b))])
	if random.IntN(2) == 0 {
		_ = conn.SetLinger(0) // Close sends a reset
	}
	return unlessReset(err)
}

func changed(addr string, random *rand.Rand) error {
	b := valid()
	b[random.IntN(len(b))] = byte(random.IntN(256))
	return play(addr, b)
}

func lie(addr string, random *rand.Rand) error {
	list := falseLengths()
	return play(addr, []byte(list[random.IntN(len(list))]))
}

func garbage(addr string, random *rand.Rand) error {
	return play(addr, noise(random, 1+random.IntN(4096)))
}

// noise returns random bytes. Half of the time, they are from an alphabet of the protocol, which has too few
// letters for the name of a command.
func noise(random *rand.Rand, length int) []byte {
	const alphabet = "*$0123456789-+\r\n\r\n\"' \x00z"
	b := make([]byte, length)
	plain := random.IntN(2) == 0
	for i := range b {
		if b[i] = byte(random.IntN(256)); !plain {
			b[i] = alphabet[random.IntN(len(alphabet))]
		}
	}
	return b
}

func otherProtocol(addr string, random *rand.Rand) error {
	return play(addr, []byte(otherProtocols[random.IntN(len(otherProtocols))]))
}

// silence holds connections that have begun a call, until a few other calls have been answered.
func silence(addr string, random *rand.Rand) error {
	for range 10 {
		conn, err := dial(addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte{"*$G\r"[random.IntN(4)]}); err != nil {
			return err
		}
	}
	return play(addr, Command("PING"))
}

// unread sends far more than it reads, until it is blocked or disconnected, or has sent 4 MiB.
func unread(addr string, random *rand.Rand) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetReadBuffer(4096)
	echo := Command("ECHO", strings.Repeat("x", 1+random.IntN(256<<10)))
	for sent := 0; sent < 4<<20; sent += len(echo) {
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := conn.Write(echo); err != nil {
			break
		}
	}
	return nil
}

func resetInReply(addr string, random *rand.Rand) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(Command("ECHO", strings.Repeat("x", 1<<20))); err != nil {
		return unlessReset(err)
	}
	_, err = io.ReadFull(conn, make([]byte, 1+random.IntN(1<<19)))
	_ = conn.SetLinger(0)
	return err
}

func keysAndGone(addr string, random *rand.Rand) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 1 + random.IntN(5) {
		if _, err := conn.Write(Command("KEYS", "*")); err != nil {
			return unlessReset(err)
		}
	}
	return nil
}

func floodOnce(addr string, random *rand.Rand) error {
	var b []byte
	for range 1 + random.IntN(20) {
		b = append(b, Command("INFO")...)
		b = append(b, Command("COMMAND", "DOCS")...)
	}
	return play(addr, b)
}

func churn(addr string, _ *rand.Rand) error {
	for range 10 {
		conn, err := dial(addr)
		if err != nil {
			return err
		}
		_ = conn.SetLinger(0)
		conn.Close()
	}
	return nil
}
