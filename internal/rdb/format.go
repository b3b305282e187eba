package rdb

import (
	"errors"
	"fmt"
	"math"
)

// Version is the version of the format that this package writes: Redis 7.0's.
const Version = 10

// This package reads Redis's versions from firstVersion to lastVersion, which Redis 8.6 writes,
// and Valkey's. Valkey does not use 12 and 13, and nothing uses the versions between lastVersion
// and valkeyVersion.
const (
	firstVersion  = 1
	lastVersion   = 13
	valkeyVersion = 80

	// checksumVersion is the first version with a checksum.
	checksumVersion = 5
)

const (
	magic       = "REDIS"
	valkeyMagic = "VALKEY"
	headerBytes = 9 // bytes of the magic and the digits of the version
)

// The opcodes of sections. Bytes below firstOpcode are types of keys.
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

// Forms of a length, by the upper two bits of its first byte, or by the whole byte.
const (
	length14  = 0x40
	length32  = 0x80
	length64  = 0x81
	encoded8  = 0xc0
	encoded16 = 0xc1
	encoded32 = 0xc2
	encodedLZ = 0xc3
)

// maxString bounds the strings that a Reader returns. It is Redis's default bound on strings.
// Skipped strings may be longer.
const maxString = 512 << 20

// Never is the expiry of a key that does not expire.
const Never int64 = math.MaxInt64

// Type is the type of a key, as in Redis's TYPE.
type Type uint8

const (
	String Type = iota
	List
	Set
	SortedSet
	Hash
	Stream
	Module // a module's own type
	Field  // a field about the file; only fields that Reader.Returns names are records
)

var typeNames = [...]string{"string", "list", "set", "zset", "hash", "stream", "module", "field"}

// String returns the name of the type, as TYPE shows it.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Record is one key of a file.
type Record struct {
	Database int
	Key      []byte // valid until the next call
	Type     Type
	Module   string // of a Module, the module's name: 9 characters
	Expires  int64  // Unix milliseconds, or Never

	// The value of a String. If the file stores it in an encoding for integers, it is an Integer;
	// otherwise, even if it consists of digits, it is Bytes, which are valid until the next call.
	// Values of other types are skipped.
	Bytes     []byte
	Integer   int64
	IsInteger bool
}

// Error is an error at a position in the file.
type Error struct {
	Offset int64 // bytes from the beginning
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("at byte %d: %v", e.Offset, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

var (
	// ErrMagic means that the file is not an RDB file.
	ErrMagic = errors.New("this is not an RDB file")
	// ErrVersion means that the version is unknown.
	ErrVersion = errors.New("unknown version")
	// ErrChecksum means that bytes have changed since the file was written.
	ErrChecksum = errors.New("the checksum does not match")
	// ErrNoChecksum means that the file was read to its end, but has no checksum: it was written
	// with rdbchecksum no, or by a Redis before 2.6.
	ErrNoChecksum = errors.New("the file has no checksum")
	// ErrTooLong means that a string is longer than the limit of ReadDumpLimit.
	ErrTooLong = errors.New("the string is too long")
	// ErrMalformed means that the file contains something that no version of Redis writes, or that
	// is unknown to this package.
	ErrMalformed = errors.New("malformed")
)
