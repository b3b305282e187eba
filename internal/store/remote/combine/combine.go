// Package combine is the core of the remote store: it makes atomic steps on keys that a backend
// such as Redis or Valkey holds, by compare and set. It computes the new value of a key here, and
// sets it only if the key still holds what it was computed from. Steps that arrive while a key is
// being written wait, and the next write applies all of them.
//
// The machine is pure, like the limiters' algorithms: it is told the time, the steps and the
// replies, and says what to send. It has no goroutine, no clock and no socket, so a simulation can
// run many of them on a virtual network.
package combine
