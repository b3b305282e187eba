package resp

// cutoff is the largest number that may still be multiplied by ten and be given a digit: the
// result, at most 9223372036854775809, is held by a uint64 and tells overflow from both ends of the
// int64 range.
const cutoff = (1 << 63) / 10

// ParseInt reads a base-10 int64 as Redis's string2ll does: one spelling for each number, so no
// '+', no leading zero, no "-0", no space. ok is false for anything else and beyond the int64
// range.
func ParseInt(word []byte) (n int64, ok bool) {
	if len(word) > 0 && len(word) <= 18 && word[0]-'1' < 9 { // nearly all: it has no sign, and cannot overflow
		for _, c := range word {
			c -= '0' // a byte below '0' wraps to far above 9
			if c > 9 {
				return 0, false
			}
			n = n*10 + int64(c)
		}
		return n, true
	}
	negative := len(word) > 0 && word[0] == '-'
	if negative {
		word = word[1:]
	}
	if len(word) > 0 && word[0] == '0' && (negative || len(word) > 1) {
		return 0, false
	}
	return signed(word, negative)
}

// ParseDecimal reads a base-10 int64 as redis-cell does: an optional '+' or '-', then at least one
// digit, leading zeros allowed. ok is false for anything else and beyond the int64 range.
func ParseDecimal(word []byte) (n int64, ok bool) {
	negative := len(word) > 0 && word[0] == '-'
	if negative || len(word) > 0 && word[0] == '+' {
		word = word[1:]
	}
	return signed(word, negative)
}

// signed reads digits and gives them their sign. The int64 range reaches one further down than up.
func signed(digits []byte, negative bool) (n int64, ok bool) {
	u, ok := unsigned(digits)
	switch {
	case !ok:
		return 0, false
	case negative && u <= 1<<63:
		return int64(-u), true // two's complement: right for 1<<63 as well
	case !negative && u < 1<<63:
		return int64(u), true
	}
	return 0, false
}

// unsigned reads one or more digits. Its result may exceed 1<<63 by one: the caller knows the sign,
// and so the bound.
func unsigned(digits []byte) (u uint64, ok bool) {
	for _, c := range digits {
		c -= '0'
		if c > 9 || u > cutoff {
			return 0, false
		}
		u = u*10 + uint64(c)
	}
	return u, len(digits) > 0
}
