// Package rdb reads and writes Redis's snapshot files (RDB), and the payloads of DUMP and RESTORE,
// which have the same encoding of values.
//
// A Writer writes strings and integers, with their expiries, in version 10 of the format, which
// Redis 7.0 and later load. A Reader reads versions 1 to 13 (Redis up to 8.6) and Valkey's version
// 80. It returns strings and integers. For keys of other types it returns only the type, so that an
// import can report the keys that it skips. Reader and Writer stream: they keep neither the file
// nor a key in memory after a call returns.
//
// # The file
//
//	"REDIS0010"   magic, and the version in four digits; "VALKEY080" with three
//	sections      each begins with a byte: an opcode, or the type of a key
//	0xFF          the end
//	checksum      8 bytes: CRC-64 of everything before it (since version 5); 0 means none
//
// Numbers of a fixed size, and checksums, are little-endian. Lengths and counts are encoded as a
// length. Its first two bits determine its size:
//
//	00nnnnnn             6 bits
//	01nnnnnn nnnnnnnn    14 bits, big-endian
//	10000000 4 bytes     32 bits, big-endian
//	10000001 8 bytes     64 bits, big-endian
//	11eeeeee             no length: a string in another encoding follows
//
// A string is a length and as many bytes, or one of the other encodings:
//
//	0xC0 1 byte, 0xC1 2 bytes, 0xC2 4 bytes     the decimal digits of a signed integer
//	0xC3 length of packed, length, packed       compressed by LZF
//
// # Sections
//
//	0xFA name value            AUX: a field about the file, such as redis-ver, or about a key, as the open holds of
//	                           cellserver are; unknown ones are ignored
//	0xFE length                SELECTDB: the database of the keys that follow
//	0xFB length length         RESIZEDB: how many keys it has, and how many of them expire (a hint)
//	0xFC 8 bytes               the next key expires, Unix milliseconds
//	0xFD 4 bytes               the next key expires, Unix seconds (in old files)
//	0xF8 length, 0xF9 1 byte   the next key's idle time, or its frequency of use
//	0xF5 string                the source of a library of functions (since version 10)
//	0xF7 module                data of a module outside of keys (since version 9)
//	0xF4 length length length  a slot of a cluster: its number, keys, and keys that expire
//	type key value             a key: its type, its name as a string, and its value
//
// The value of type 0 is a string. For the other types, skip.go lists the parts of a value in as
// much detail as is necessary to find its end. Type 6, a module's value in the release candidates
// of Redis 4.0, is an error, because its end cannot be found without the module. Unknown types and
// opcodes are errors too.
//
// # The payload of DUMP
//
//	type value            as in the file
//	version               2 bytes
//	checksum              8 bytes: CRC-64 of everything before it
//
// # The checksum
//
// It is CRC-64 by Jones's polynomial 0xad93d23594c935a9, bits reflected, with an initial value of 0
// and no final inversion: of "123456789" it is 0xe9c6d914c4b8d9ca.
//
// # Compression
//
// By default, Redis compresses strings of more than 20 bytes with LZF. This package reads such
// strings (lzf.go describes the format), but does not write them, for the reason given at Writer.
package rdb
