// Package form is how the state of a limiter is written down: in the journal and the snapshot, in
// the payload of DUMP, in exported files, and as the value of a key in a store elsewhere. There is
// one form of each kind, with a version, and one encoder and decoder.
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
//	version    8 bytes that differ each time the key is written, or zeros
//	entries    of each, the oldest first, the count of what was taken (not 0) and when it was: of the
//	           first its instant, of all others the duration since the entry before (not 0); and then 0
//	leases     of each, by end and then by holder, the count of permits (not 0), when it ends (of the
//	           first the instant, of all others the duration from the end before), and the length of
//	           its holder's name, as a count, with the name; and then 0
//
// What a state is made of is explained where its algorithm is: gcra, window, lease. The running
// totals of a log begin with 0 again, because only their differences say something.
//
// Each state has exactly one form, so that forms are equal if the states are: a store elsewhere
// compares them. The decoder takes nothing else, and only states that the algorithms can leave
// behind (State.Check): a form that is cut off is never taken, and one with a changed byte only if
// it is the form of another state. Whether bytes have changed is for the checksums around a form.
//
// A form may change only with the digit in its mark. What begins with "\x00cl" and another digit is
// of a newer cellserver, and refused by that name.
//
// # Throttle keys
//
// Where others see a key, in a Redis or in an RDB file, a throttle key is what redis-cell writes: the
// TAT in decimal digits, and the same instant as its expiry. See AppendTAT and ParseTAT.
package form
