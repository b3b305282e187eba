package rdb

import (
	"errors"
	"fmt"
	"math"
)

// Version is the version of what this package writes: that of Redis 7.0.
const Version = 10

// What this package reads: Redis's versions from firstVersion to lastVersion, which is that of
// 8.6, and Valkey's. Versions between the two are of neither, and 12 and 13 are of Redis alone.
const (
	firstVersion  = 1
	lastVersion   = 13
	valkeyVersion = 80

	// withChecksum is the first version that has a checksum.
	withChecksum = 5
)

const (
	magic       = "REDIS"
	valkeyMagic = "VALKEY"
	headerBytes = 9 // of the magic and the version's digits
)

// Opcodes. All others below firstOpcode are types.
const (
	opSlot         = 0xf4
	opLibrary      = 0xf5
	opModule       = 0xf7
	opIdle         = 0xf8
	opFrequency    = 0xf9
	opField        = 0xfa
	opSizes        = 0xfb
	opMilliseconds = 0xfc
	opSeconds      = 0xfd
	opDatabase     = 0xfe
	opEnd          = 0xff

	firstOpcode = 0xf0
)

// Forms of a length, by its first byte: the upper two bits, or all.
const (
	length14  = 0x40
	length32  = 0x80
	length64  = 0x81
	encoded8  = 0xc0
	encoded16 = 0xc1
	encoded32 = 0xc2
	encodedLZ = 0xc3
)

// maxString bounds what a Reader returns: Redis's own bound on a string, unless it is configured
// otherwise. What is skipped may be longer.
const maxString = 512 << 20

// Never is the expiry of a key that does not expire.
const Never int64 = math.MaxInt64

// Type is what a key holds, as Redis's TYPE tells it.
type Type uint8

const (
	String Type = iota
	List
	Set
	SortedSet
	Hash
	Stream
	Module // a module's own type
)

var typeNames = [...]string{"string", "list", "set", "zset", "hash", "stream", "module"}

// String is the type's name as TYPE says it.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Record is one key of a file.
type Record struct {
	Database int
	Key      []byte // borrowed until the next call
	Type     Type
	Module   string // of a Module, whose it is: 9 characters
	Expires  int64  // Unix milliseconds, or Never

	// What a String holds: an integer if it is stored as one, else its bytes, borrowed until the
	// next call. (An integer may be stored as its digits, too: those are bytes.) Other types have
	// been skipped.
	Bytes     []byte
	Integer   int64
	IsInteger bool
}

// Error says where reading failed.
type Error struct {
	Offset int64 // bytes from the beginning
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("at byte %d: %v", e.Offset, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

var (
	// ErrMagic: it is no RDB file.
	ErrMagic = errors.New("this is not an RDB file")
	// ErrVersion: nothing is known of this version.
	ErrVersion = errors.New("unknown version")
	// ErrChecksum: bytes were changed since the file was written.
	ErrChecksum = errors.New("the checksum does not match")
	// ErrNoChecksum: the file was read to its end, but has no checksum that would show a change:
	// redis-server was told so (rdbchecksum no), or is older than 2.6.
	ErrNoChecksum = errors.New("the file has no checksum")
	// ErrMalformed is of all else that no Redis writes, or that this package does not know.
	ErrMalformed = errors.New("malformed")
)
