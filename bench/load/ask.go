package load

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Ask makes one call and returns its reply, which must be a line or a bulk string.
func Ask(t Target, words ...string) (string, error) {
	conn, err := net.DialTimeout(t.Network, t.Address, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	if _, err := conn.Write(appendWords(nil, words)); err != nil {
		return "", err
	}
	return readText(bufio.NewReader(conn))
}

func readText(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil || len(line) < len("+\r\n") {
		return "", fmt.Errorf("no reply: %w", err)
	}
	text := line[1 : len(line)-len("\r\n")]
	switch line[0] {
	case '+', ':':
		return text, nil
	case '$':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return "", fmt.Errorf("no text: %q", line)
		}
		bulk := make([]byte, n)
		_, err = io.ReadFull(r, bulk)
		return string(bulk), err
	}
	return "", fmt.Errorf("the server answered %q", text)
}
