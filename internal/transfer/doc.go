// Package transfer moves keys between running servers, folders of --dir and RDB files: the
// subcommands cellserver export and cellserver import.
//
// On its way a key is an item: a string, or a limiter as the form of its state, in Unix time. A
// source makes items of what it reads, and a destination writes them. In RDB files, limiters are
// strings: a throttle key is what redis-cell writes, all others are forms. Package form explains
// both.
package transfer
