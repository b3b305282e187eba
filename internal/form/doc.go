// Package form encodes the state of a limiter as bytes: for the journal and the snapshot, the
// payload of DUMP, exported files, and the values of an external store. There is one encoding,
// called form, for each kind of limiter. It has a version.
//
// # The form
//
// A form is the mark "\x00cl1", a letter for the kind, and the state:
//
//	t  throttle          instant TAT
//	f  fixed window      instant start, count used, duration from start to end
//	s  sliding window    instant start, count previous, count current, duration from start to end, instant until
//	l  sliding log       version, entries, duration from the newest entry to the end, instant until
//	c  leases            version, leases
//
// in which
//
//	instant    8 bytes, big-endian: nanoseconds on the clock of the store, not negative
//	count      1 to 9 bytes: a number from 0 to 2^63-1, in groups of 7 bits, the lowest first; all
//	           bytes but the last have their upper bit set, and the last is not 0 unless it is the first
//	duration   a count of nanoseconds
//	version    8 bytes: random, and new each time that an external store writes the key; elsewhere zeros
//	entries    of each, the oldest first, the count of what was taken (not 0) and when it was: of the
//	           first its instant, of all others the duration since the entry before (not 0); and then 0
//	leases     of each, by end and then by holder, the count of permits (not 0), when it ends (of the
//	           first the instant, of all others the duration from the end before), and the length of
//	           its holder's name, as a count, with the name; and then 0
//
// The packages of the algorithms, gcra, window and lease, explain the fields of a state. The
// running totals of a log begin with 0 again, because only their differences matter.
//
// Each state has exactly one form, apart from the version, so that equal states have equal forms: an
// external store compares forms. Those of logs and leases may be long, so of them it compares only
// the version (SetVersion, Identity). The decoder accepts only such forms, of states that the
// algorithms can produce (State.Check). It never accepts a truncated form, and accepts a form with a
// changed byte only if that is the form of another state. Detecting changed bytes is left to the
// checksums around a form.
//
// If the encoding changes, the digit in the mark must change too. A value that begins with "\x00cl"
// and another digit was written by a newer cellserver; the error that refuses it names the mark.
//
// # Throttle keys
//
// Where other programs read a key, in a Redis or in an RDB file, a throttle key has the format of
// redis-cell: its value is the TAT in decimal digits, and its expiry is the same instant. See
// AppendTAT and ParseTAT.
package form
