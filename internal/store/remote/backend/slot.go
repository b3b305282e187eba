package backend

import (
	"strconv"
	"strings"
	"sync"
)

// Slots is the number of slots of a cluster.
const Slots = 16384

// Slot returns the slot of a key in a cluster: the CRC16 of the key, or of what is between its first
// { and the next }, unless that is empty.
func Slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return int(crc) % Slots
}

// crcTable is the table of CRC16-CCITT (XMODEM), with the polynomial x^16 + x^12 + x^5 + 1.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

// tags returns a number for each slot whose decimal digits are in that slot. About 160,000 numbers
// have to be tried to find one for each slot, which takes a few milliseconds, once.
var tags = sync.OnceValue(func() *[Slots]uint32 {
	table := new([Slots]uint32)
	found := 0
	for number := uint32(1); found < Slots; number++ {
		slot := Slot(strconv.FormatUint(uint64(number), 10))
		if table[slot] == 0 {
			table[slot] = number
			found++
		}
	}
	return table
})

// internalMark follows the tag in the names of all internal keys.
const internalMark = "}\x00"

// turnKey returns the name of the turn key of a key. It lies in the same slot, and begins with the
// prefix, so that the rights that keys need are enough for it.
func (b *Backend) turnKey(key string) string {
	return b.internalKey(Slot(key), "turn:"+strings.TrimPrefix(key, b.config.Prefix))
}

// OwnKey returns the name of an internal key of the store, in the slot of a key. It begins with the
// prefix, and is neither a key of a client nor a turn key.
func (b *Backend) OwnKey(key, name string) string { return b.internalKey(Slot(key), name) }

func (b *Backend) internalKey(slot int, name string) string {
	return b.config.Prefix + "{" + strconv.FormatUint(uint64(tags()[slot]), 10) + internalMark + name
}

// IsInternal reports whether a key of the backend is an internal key, such as a turn key.
func (b *Backend) IsInternal(key string) bool {
	rest, ours := strings.CutPrefix(key, b.config.Prefix)
	if !ours || len(rest) == 0 || rest[0] != '{' {
		return false
	}
	tag, _, ours := strings.Cut(rest[1:], internalMark)
	_, err := strconv.ParseUint(tag, 10, 32)
	return ours && err == nil
}
