// Package commands is what cellserver understands: the list of command families, and how they are
// put together with a store into the Instance that sessions share. Each family is a folder below:
// its commands, their state, and its conversations.
//
// To add a family, write a package that knows the language of commands (internal/command), the
// clients and the store's contract, and add it to the list in families.go: its commands, what it says
// in INFO, and what RESET and the end of a connection undo. Its options are in settings.go.
package commands
