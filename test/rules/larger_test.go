package rules

// larger lists everything above its maximum, and why it is allowed.
var larger = ceilings{
	{"methods", "internal/store View", 38, "all that a store can do, in nine parts that are documented one by one; " +
		"what needs less asks for a part. A call gets all in one value, because passing parts costs lookups in each call"},
	{"methods", "internal/store/storetest fullView", 43, "a view with its optional parts, which a test wraps"},
	{"methods", "internal/commands_test fullView", 41, "a view with its optional parts, which a test wraps"},

	{"fields", "internal/session Session", 45, "the conversation with one client, in one piece of memory: connections are many"},
	{"fields", "internal/session Caller", 50, "a session, and what a caller in the process needs beside it"},
	{"fields", "internal/session Instance", 28, "all parts of a server that sessions use, with those of command.Server"},
	{"fields", "internal/command Call", 42, "what a row may use, and memory that calls reuse, so that a call allocates nothing"},
	{"booleans", "internal/command Call", 7, "properties of a call, each set by another part of its way"},
	{"fields", "internal/command Command", 32, "everything about a command; a row sets about twelve of them"},
	{"fields", "internal/persist Folder", 30, "options, state on the disk, and the loop that writes it"},
	{"fields", "internal/persist recorder", 38, "how far the journal, its segments and their names have reached the disk"},
	{"fields", "internal/store/memory shard", 28, "laid out by cache line, in the order in which steps read them"},
	{"wide lines", "internal/grpcapi/info.go", 1, wideBefore},
	{"wide lines", "internal/grpcapi/memory.go", 2, wideBefore},
	{"wide lines", "internal/grpcapi/settings.go", 2, wideBefore},
	{"wide lines", "internal/store/remote/adding/adding.go", 1, wideBefore},
	{"wide lines", "internal/store/remote/ahead.go", 1, wideBefore},
	{"wide lines", "internal/store/remote/ahead/book.go", 1, wideBefore},
	{"wide lines", "internal/store/remote/holds.go", 1, wideBefore},
	{"wide lines", "internal/store/remote/view.go", 1, wideBefore},
	{"wide lines", "tests and tools in bench", 28, wideBefore},
	{"wide lines", "tests and tools in clients", 7, wideBefore},
	{"wide lines", "tests and tools in cmd", 6, wideBefore},
	{"wide lines", "tests and tools in internal", 235, wideBefore},
	{"wide lines", "tests and tools in test", 158, wideBefore},

	{"booleans", "internal/store/remote/combine flight", 9, "how far a flight has come, and what its requests need"},
}

// wideBefore is the reason of lines that were written while a tab counted as one column. Break such a line when you
// change it.
const wideBefore = "written before tabs counted as 4 columns"
