package rdb

import "errors"

// maxExpansion is the largest factor by which a string can be compressed: three bytes stand for at
// most 264.
const maxExpansion = 88

var errLZF = errors.New("malformed compressed string")

// unpack decompresses packed and appends the result to dst. It returns an error if the result does
// not have n bytes. The format of LZF is a sequence of
//
//	000lllll                     l+1 literal bytes follow
//	lllooooo oooooooo            a copy of l+2 bytes from o+1 bytes before the end of the output; l < 7
//	111ooooo llllllll oooooooo   the same, of l+9 bytes
//
// The source of a copy may overlap the copy: it then repeats bytes that it has written itself.
func unpack(dst, packed []byte, n int) ([]byte, error) {
	from, to := len(dst), len(dst)+n
	for at := 0; at < len(packed); {
		control := int(packed[at])
		at++
		if control < 32 {
			end := at + control + 1
			if end > len(packed) || len(dst)+control+1 > to {
				return dst, errLZF
			}
			dst = append(dst, packed[at:end]...)
			at = end
			continue
		}
		length := control>>5 + 2
		if control>>5 == 7 {
			if at == len(packed) {
				return dst, errLZF
			}
			length += int(packed[at])
			at++
		}
		if at == len(packed) {
			return dst, errLZF
		}
		begin := len(dst) - (control&31<<8 | int(packed[at])) - 1
		at++
		if begin < from || len(dst)+length > to {
			return dst, errLZF
		}
		for length > 0 { // an overlapping source: each round can copy twice as many bytes
			again := dst[begin:min(begin+length, len(dst))]
			dst = append(dst, again...)
			length -= len(again)
		}
	}
	if len(dst) != to {
		return dst, errLZF
	}
	return dst, nil
}
