package commandstest

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"strings"

	"github.com/stretchr/testify/require"

	"cellserver/internal/form"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/rdb"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/window"
)

// PayloadNamed returns the payload of RESTORE that a word of a worst call names in braces, or the
// word itself.
func PayloadNamed(word string) string {
	dump := func(value string) string { return string(rdb.AppendDump(nil, []byte(value))) }
	switch word {
	case "{payload of 1 MiB}":
		return dump(strings.Repeat("v", 1<<20-100))
	case "{payload of 3 KiB}":
		return dump(strings.Repeat("v", 3<<10))
	case "{payload of 10,000 leases}":
		return dump(FormOfLeases(10_000))
	case "{payload of 100 leases}":
		return dump(FormOfLeases(100))
	case "{compressed payload}":
		return CompressedPayload(3900)
	}
	return word
}

// FormOfLeases returns the state of a key with n holders, as bytes.
func FormOfLeases(n int) string {
	state := form.State{Kind: limit.Lease}
	for i := range n {
		state.Leases = append(state.Leases,
			lease.Lease{Holder: fmt.Sprintf("holder%05d", i), Quantity: 1, End: Start + 1e15 + int64(i)})
	}
	return string(form.Append(nil, &state))
}

// CompressedPayload returns a payload of 3 bytes for each 264 bytes of a value.
func CompressedPayload(repeats int) string {
	const each = 264
	packed := "\x00v" + strings.Repeat("\xe0\xff\x00", repeats)
	body := []byte{0, 0xc3, 0x80}
	body = binary.BigEndian.AppendUint32(body, uint32(len(packed)))
	body = binary.BigEndian.AppendUint32(append(body, 0x80), uint32(1+repeats*each))
	return WithChecksum(append(body, packed...))
}

// WithChecksum completes a payload.
func WithChecksum(body []byte) string {
	body = binary.LittleEndian.AppendUint16(body, rdb.Version)
	table := crc64.MakeTable(0x95ac9329ac4bc9b5)
	return string(binary.LittleEndian.AppendUint64(body, ^crc64.Update(^uint64(0), table, body)))
}

// Call makes a call with any words, and returns the reply as transcripts show it.
func Call(c *sessiontest.Client, t require.TestingT, words ...string) string {
	require.NoError(t, c.Send(Encode(words)))
	line, err := c.Receive(0)
	require.NoError(t, err)
	return line
}

// FormOfLog returns the state of a log with n entries, as bytes.
func FormOfLog(n int) string {
	state := form.State{Kind: limit.SlidingLog, Log: window.Log{End: Start + 1e15}}
	for i := range n {
		state.Entries = append(state.Entries, window.Entry{At: Start + int64(i), Total: uint64(i + 1)})
	}
	return string(form.Append(nil, &state))
}

// PayloadOf returns the payload of a string.
func PayloadOf(value string) string { return string(rdb.AppendDump(nil, []byte(value))) }

// ReadBulk makes a call whose reply is a string of any bytes, and returns the string.
func ReadBulk(t require.TestingT, c *sessiontest.Client, words ...string) string {
	require.NoError(t, c.Send(Encode(words)))
	c.Read()
	reply := string(c.Received)
	c.Received = nil
	require.Equal(t, "$", reply[:1])
	_, text, _ := strings.Cut(reply, "\r\n")
	return strings.TrimSuffix(text, "\r\n")
}
