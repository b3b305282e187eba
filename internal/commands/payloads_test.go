package commands

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"strings"

	"cellserver/internal/form"
	"cellserver/internal/lease"
	"cellserver/internal/rdb"
)

// payloadNamed returns the payload of RESTORE that a word of a worst call names in braces, or the
// word itself.
func payloadNamed(word string) string {
	dump := func(value string) string { return string(rdb.AppendDump(nil, []byte(value))) }
	switch word {
	case "{payload of 1 MiB}":
		return dump(strings.Repeat("v", 1<<20-100))
	case "{payload of 3 KiB}":
		return dump(strings.Repeat("v", 3<<10))
	case "{payload of 10,000 leases}":
		return dump(formOfLeases(10_000))
	case "{payload of 100 leases}":
		return dump(formOfLeases(100))
	case "{compressed payload}":
		return compressedPayload(3900)
	}
	return word
}

// formOfLeases returns the state of a key with n holders, as bytes.
func formOfLeases(n int) string {
	state := form.State{Kind: form.Lease}
	for i := range n {
		state.Leases = append(state.Leases,
			lease.Lease{Holder: fmt.Sprintf("holder%05d", i), Quantity: 1, End: clockStart + 1e15 + int64(i)})
	}
	return string(form.Append(nil, &state))
}

// compressedPayload returns a payload of 3 bytes for each 264 bytes of a value.
func compressedPayload(repeats int) string {
	const each = 264
	packed := "\x00v" + strings.Repeat("\xe0\xff\x00", repeats)
	body := []byte{0, 0xc3, 0x80}
	body = binary.BigEndian.AppendUint32(body, uint32(len(packed)))
	body = binary.BigEndian.AppendUint32(append(body, 0x80), uint32(1+repeats*each))
	return withChecksum(append(body, packed...))
}

// withChecksum completes a payload.
func withChecksum(body []byte) string {
	body = binary.LittleEndian.AppendUint16(body, rdb.Version)
	table := crc64.MakeTable(0x95ac9329ac4bc9b5)
	return string(binary.LittleEndian.AppendUint64(body, ^crc64.Update(^uint64(0), table, body)))
}
