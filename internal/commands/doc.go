// Package commands lists the families of commands, and combines them with a store into the Instance
// that sessions share. Each family is a folder below: its commands, their state, and its transcripts.
// A command is a row of the table of commands: see package command.
//
// To add a family, write a package that knows the language of commands (internal/command), the
// clients and the store's contract. Add it to families.go: its commands, its parts of INFO, and what
// it does at RESET and at the end of a connection. Add its options to settings.go.
package commands
