// Package form encodes the state of a limiter, or the standing of a policy's subject, as bytes, for
// the journal and snapshots, the payload of DUMP, exported files, and the values of an external
// store. There is one encoding for each kind of state; an encoded state is called a form. Forms have
// a version.
//
// # The form
//
// A form is the mark "\x00cl1", a letter for the kind, and the state:
//
//	t  throttle          instant TAT
//	f  fixed window      instant start, count used, duration from start to end
//	s  sliding window    instant start, count previous, count current, duration from start to end, instant until
//	l  sliding log       version, entries, duration from the newest entry to the end, instant until
//	q  calendar quota    instant end, count used, windows
//	c  leases            version, leases
//	b  standing          the bytes of package standing, which have a version of their own
//
// in which
//
//	instant    8 bytes, big-endian: nanoseconds on the clock of the store, not negative; of a calendar
//	           quota, in Unix time
//	count      1 to 9 bytes: a number from 0 to 2^63-1, in groups of 7 bits, the lowest first; all
//	           bytes but the last have their upper bit set, and the last is not 0 unless it is the first
//	duration   a count of nanoseconds
//	version    8 bytes: in an external store, random, and new each time that it writes the key; in a
//	           journal, the version that deltas refer to (package entry); elsewhere zeros
//	entries    for each, the oldest first: the count of its quantity (not 0), and the instant of the
//	           first, or the duration since the previous one (not 0) of all others; and then 0
//	windows    the count of nanoseconds in a period; or 0, the count of the unit (0 for HOUR to 4 for
//	           YEAR), the length of the name of the time zone as a count, and the name
//	leases     for each, by end and then by holder: the count of permits (not 0), the instant at which
//	           the first ends, or the duration since the previous end of all others, the length of the
//	           holder's name as a count, and the name; and then 0
//
// The packages of the algorithms, gcra, window, lease and standing, explain the fields of a state. The
// running totals of a log are not encoded, because only their differences matter: a decoded log
// begins with 0.
//
// Each state has exactly one form, apart from the version, so that equal states have equal forms: an
// external store compares forms. The forms of logs and leases may be long, so it compares only their
// version (SetVersion, Identity). The decoder accepts only such forms, of states that the algorithms
// can produce (State.Check). It never accepts a truncated form, and accepts a form with a changed
// byte only if that is the form of another state. Detecting changed bytes is left to the checksums
// around a form.
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
