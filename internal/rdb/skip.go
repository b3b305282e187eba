package rdb

import "encoding/binary"

// Types of values, as they are encoded.
const (
	typeString = 0
	typeModule = 7

	// typeHash2 is Valkey's type for hashes whose fields expire. The same number is another type in
	// the release candidates of Redis 7.4.
	typeHash2 = 22
)

// part is a part of a value.
type part struct {
	kind partKind
	of   []part // the parts of one repetition
}

type partKind uint8

const (
	isString   partKind = iota
	isLength            // a length, which may stand for any number
	isEight             // 8 bytes: an instant, or a floating-point number
	isSixteen           // 16 bytes: the ID of a stream's entry
	isScore             // a floating-point number: a byte with the number of digits, and the digits
	isRepeated          // a length, and as many repetitions of the parts
)

var (
	aString = part{kind: isString}
	aLength = part{kind: isLength}
	eight   = part{kind: isEight}
	sixteen = part{kind: isSixteen}
	aScore  = part{kind: isScore}
)

func each(of ...part) part { return part{kind: isRepeated, of: of} }

// layout describes how a type is stored.
type layout struct {
	of    Type
	parts []part
}

// layouts has all types except strings and modules, by their numbers. A value in one of the
// encodings in the comments (ziplist, listpack, intset, zipmap) is a single string here.
var layouts = map[byte]layout{
	1:  {List, []part{each(aString)}},
	2:  {Set, []part{each(aString)}},
	3:  {SortedSet, []part{each(aString, aScore)}},
	4:  {Hash, []part{each(aString, aString)}},
	5:  {SortedSet, []part{each(aString, eight)}},
	9:  {Hash, []part{aString}},                // zipmap
	10: {List, []part{aString}},                // ziplist
	11: {Set, []part{aString}},                 // intset
	12: {SortedSet, []part{aString}},           // ziplist
	13: {Hash, []part{aString}},                // ziplist
	14: {List, []part{each(aString)}},          // a quicklist of ziplists
	16: {Hash, []part{aString}},                // listpack
	17: {SortedSet, []part{aString}},           // listpack
	18: {List, []part{each(aLength, aString)}}, // a quicklist; the length: one element, or a listpack
	20: {Set, []part{aString}},                 // listpack

	// Hashes whose fields expire: they contain the first expiry, or the expiry of each field.
	22: {Hash, []part{each(aLength, aString, aString)}}, // Redis 7.4, release candidates
	23: {Hash, []part{aString}},                         // the same, listpack
	24: {Hash, []part{eight, each(aLength, aString, aString)}},
	25: {Hash, []part{eight, aString}}, // listpack

	15: {Stream, stream(1)},
	19: {Stream, stream(2)},
	21: {Stream, stream(3)},
	26: {Stream, stream(4)},
}

var hash2 = layout{Hash, []part{each(aString, aString, eight)}} // field, value, when it expires

// stream is the layout of a stream. There are four versions: Redis 5.0, 7.0, 7.2 and 8.6.
func stream(version int) (parts []part) {
	parts = []part{
		each(aString, aString), // the first ID of a listpack, the listpack
		aLength,                // entries
		aLength, aLength,       // the last ID
	}
	if version >= 2 {
		parts = append(parts, aLength, aLength, // the first ID
			aLength, aLength, // the last ID of a deleted entry
			aLength) // entries ever added
	}
	parts = append(parts, each(groupOfStream(version)...))
	if version >= 4 {
		parts = append(parts, aLength, aLength, // for how long, and how many, IDs of messages are kept
			each(aString, // a producer
				each(aString, aLength, aLength)), // the ID of its message, the ID of the entry
			aLength, aLength) // IDs ever added, and found again
	}
	return parts
}

func groupOfStream(version int) (parts []part) {
	parts = []part{aString, // its name
		aLength, aLength} // the last ID delivered
	if version >= 2 {
		parts = append(parts, aLength) // entries read
	}
	pending := each(sixteen, eight, aLength) // its ID, when it was delivered, how many times
	consumer := []part{aString, eight}       // its name, when it was seen
	if version >= 3 {
		consumer = append(consumer, eight) // when it was active
	}
	consumer = append(consumer, each(sixteen)) // its pending entries
	return append(parts, pending, each(consumer...))
}

// skipValue skips a value that is not a string.
func (d *decoder) skipValue(stored byte, valkey bool, begin int64) (of Type, module string, err error) {
	if stored == typeModule {
		module, err = d.skipModule()
		return Module, module, err
	}
	l, known := layouts[stored]
	if stored == typeHash2 && valkey {
		l = hash2
	}
	if !known || valkey && stored > typeHash2 {
		return 0, "", malformed(begin, "%#02x is neither a section nor a type that is known", stored)
	}
	return l.of, "", d.skipParts(l.parts)
}

func (d *decoder) skipParts(parts []part) (err error) {
	for i := 0; i < len(parts) && err == nil; i++ {
		switch parts[i].kind {
		case isString:
			err = d.skipString()
		case isLength:
			_, err = d.readLength()
		case isEight:
			err = d.skip(8)
		case isSixteen:
			err = d.skip(16)
		case isScore:
			err = d.skipScore()
		case isRepeated:
			err = d.skipRepeated(parts[i].of)
		}
	}
	return err
}

// skipRepeated skips repeated parts. A wrong number of repetitions does no harm: each part has at
// least one byte, so the input ends first.
func (d *decoder) skipRepeated(parts []part) error {
	n, err := d.readLength()
	for ; n > 0 && err == nil; n-- {
		err = d.skipParts(parts)
	}
	return err
}

func (d *decoder) skipScore() error {
	const special = 253 // 253 is NaN; 254 and 255 are the infinities
	n, err := d.readByte()
	if err != nil || n >= special {
		return err
	}
	return d.skip(uint64(n))
}

// The kinds of parts of a module's value. Each part follows its kind, which is encoded as a length.
const (
	moduleEnd = iota
	moduleSigned
	moduleUnsigned
	moduleFloat
	moduleDouble
	moduleString
)

// skipModule skips the value of a module: the number of the module, and the parts.
func (d *decoder) skipModule() (name string, err error) {
	id, err := d.readLength()
	for err == nil {
		var kind uint64
		begin := d.offset()
		if kind, err = d.readLength(); err != nil {
			break
		}
		switch kind {
		case moduleEnd:
			return moduleName(id), nil
		case moduleSigned, moduleUnsigned:
			_, err = d.readLength()
		case moduleFloat:
			err = d.skip(4)
		case moduleDouble:
			err = d.skip(8)
		case moduleString:
			err = d.skipString()
		default:
			err = malformed(begin, "a module's value has no part of kind %d", kind)
		}
	}
	return "", err
}

// moduleName returns the name that the upper 54 bits of a module's number encode, 6 bits per
// character. The lower 10 bits are the version of the values.
func moduleName(id uint64) string {
	const characters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	var name [9]byte
	for i := range name {
		name[i] = characters[id>>(58-6*i)&63]
	}
	return string(name[:])
}

// readEight reads a number of 8 bytes.
func (d *decoder) readEight() (uint64, error) {
	p, err := d.take(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(p), nil
}
