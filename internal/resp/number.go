package resp

// cutoff is the largest number to which parseUnsigned appends another digit. The result, at most
// 9223372036854775809, fits in a uint64 and is beyond both ends of the int64 range, so that the
// caller detects the overflow.
const cutoff = (1 << 63) / 10

// ParseInt parses a decimal int64 as Redis's string2ll does. Each number has one spelling: there is
// no '+', no leading zero, no "-0", no space. ok is false for any other text and for a number
// beyond the int64 range.
func ParseInt(word []byte) (n int64, ok bool) {
	if n, ok = ParseDigits(word); ok {
		return n, true
	}
	negative := len(word) > 0 && word[0] == '-'
	if negative {
		word = word[1:]
	}
	if len(word) > 0 && word[0] == '0' && (negative || len(word) > 1) {
		return 0, false
	}
	return parseSigned(word, negative)
}

// ParseDigits is ParseInt for most numbers: of at most 18 digits, which cannot overflow, and without a sign. The
// compiler inlines it.
func ParseDigits(word []byte) (n int64, ok bool) {
	if len(word) == 0 || len(word) > 18 || word[0] == '0' && len(word) > 1 {
		return 0, false
	}
	for _, c := range word {
		c -= '0' // a byte below '0' wraps to far above 9
		if c > 9 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	return n, true
}

// ParseDecimal parses a decimal int64 as redis-cell does: an optional '+' or '-', then at least one
// digit, where leading zeros are allowed. ok is false for any other text and for a number beyond
// the int64 range.
func ParseDecimal(word []byte) (n int64, ok bool) {
	negative := len(word) > 0 && word[0] == '-'
	if negative || len(word) > 0 && word[0] == '+' {
		word = word[1:]
	}
	return parseSigned(word, negative)
}

// parseSigned parses the digits of a number. The int64 range has one more negative number than
// positive ones.
func parseSigned(digits []byte, negative bool) (n int64, ok bool) {
	u, ok := parseUnsigned(digits)
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

// parseUnsigned parses one or more digits. The result may be as large as 1<<63 + 1; the caller
// checks it against the bound for its sign.
func parseUnsigned(digits []byte) (u uint64, ok bool) {
	for _, c := range digits {
		c -= '0'
		if c > 9 || u > cutoff {
			return 0, false
		}
		u = u*10 + uint64(c)
	}
	return u, len(digits) > 0
}
