// Package transfer moves keys between running servers, folders of --dir and RDB files: the
// subcommands cellserver export and cellserver import.
//
// A source reads the keys of a server or a file as records of an RDB file. A reader converts each
// record to an item, which is a string or the state of a limiter, with instants in Unix time. A
// destination writes the items. In RDB files, limiters are strings: throttle keys in the format of
// redis-cell, and all others as forms. Package form describes both.
package transfer
