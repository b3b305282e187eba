// Package remote implements store.Store over a backend, such as Redis or Valkey. Any number of
// processes that share a backend together admit exactly what a single server would.
//
// Nothing needs to be installed in the backend. Each operation of a view becomes a step (package
// combine): it gets the values of its keys, and computes the next ones. The step is committed by
// compare and set, and runs again if another process was faster. Only the most frequent steps of
// limiters are written a second time, as scripts for keys that several processes write (package
// adding). A step puts what its keys hold into a small store of package memory, makes the operation
// there, and reads the result back (scratch.go). Only CL.THROTTLE works on the value itself.
//
// # Values
//
// A key holds what other programs expect of it:
//
//   - A throttle key is what redis-cell writes: its TAT in decimal digits, with the same instant as
//     its expiry. It is therefore an integer like any other. A limiter takes any integer as a TAT,
//     and a counter any TAT as an integer. An integer is reported as a throttle key if the key
//     expires at that instant, give or take a second.
//   - All other limiters are forms (package form), which begin with a mark. Their state contains
//     their end to the nanosecond; the expiry of the key only removes it, and is never compared. A
//     form with a mark of another version is refused with an error that names the mark. Values that
//     begin with the mark cannot be written.
//   - Everything else is a value as SET writes it.
//
// Logs and leases may be long. Their forms begin with a version, which is random and new with every
// write, and only the version is compared.
package remote
