package rdb

import (
	"encoding/binary"
	"hash/crc64"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/rdb"
)

// jones is the polynomial of Redis's checksum, in the form of hash/crc64.
const jones = 0x95ac9329ac4bc9b5

// payload returns the payload of DUMP for a value. It does not use package rdb.
func payload(value string) []byte {
	p := binary.LittleEndian.AppendUint16([]byte(value), rdb.Version)
	return binary.LittleEndian.AppendUint64(p, ^crc64.Update(^uint64(0), crc64.MakeTable(jones), p))
}

// ziplist is a ziplist of two strings, each of one byte.
func ziplist(a, b string) string {
	return "\x11\x11\x00\x00\x00\x0d\x00\x00\x00\x02\x00" + "\x00\x01" + a + "\x03\x01" + b + "\xff"
}

// Encodings that redis-server reads, but no longer writes, are made by hand. redis-server and
// package rdb must agree on the type of each.
func TestOldTypes(t *testing.T) {
	const eight = "\x00\x00\x00\x00\x00\x00\x00\x00"
	client := start(t, t.TempDir())(0)
	for name, value := range map[string]struct{ stored, of string }{
		"list":            {"\x01\x02\x01a\xc0\x05", "list"},
		"set":             {"\x02\x02\x01a\xc1\x05\x05", "set"},
		"zset":            {"\x03\x03\x01a\x031.5\x01b\xfe\x01c\xff", "zset"},
		"hash":            {"\x04\x01\x01f\xc3\x06\x0b\x01ab\xe0\x00\x01", "hash"},
		"zset, binary":    {"\x05\x01\x01a" + eight, "zset"},
		"hash, zipmap":    {"\x09\x07\x01\x01f\x01\x00v\xff", "hash"},
		"list, ziplist":   {"\x0a" + ziplist("a", "b"), "list"},
		"set, intset":     {"\x0b\x0c\x02\x00\x00\x00\x02\x00\x00\x00\x01\x00\x02\x00", "set"},
		"zset, ziplist":   {"\x0c" + ziplist("a", "1"), "zset"},
		"hash, ziplist":   {"\x0d" + ziplist("f", "v"), "hash"},
		"list, ziplists":  {"\x0e\x02" + ziplist("a", "b") + ziplist("c", "d"), "list"},
		"stream, Redis 5": {"\x0f\x00\x00\x00\x00\x00", "stream"},
		"stream, Redis 5, a group": {
			"\x0f\x00\x00\x05\x06\x01" + "\x01g\x05\x06" + "\x01" + eight + eight + eight + "\x07" +
				"\x01\x01c" + eight + "\x01" + eight + eight, "stream"},
	} {
		require.NoError(t, client.Restore(ctx, name, 0, string(payload(value.stored))).Err(), name)
		require.Equal(t, value.of, client.Type(ctx, name).Val(), name)
		rec, err := rdb.ReadDump(payload(value.stored))
		require.NoError(t, err, name)
		require.Equal(t, value.of, rec.Type.String(), name)
		for cut := range value.stored[1:] {
			_, err := rdb.ReadDump(payload(value.stored[:cut]))
			require.Error(t, err, "%s, cut at %d", name, cut)
		}
	}
}
