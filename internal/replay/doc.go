// Package replay decides the requests of an access log as a server with a policy would have decided them, and reports
// the result. It has the subcommands policies replay and policies suggest.
//
//	command.go   the command line
//	flags.go     the options, for manuals
//	replay.go    a replay from its log to its report
//	judge.go     decisions, by package decide and a store whose clock is the log's
//	beside.go    the same requests with other limits, for the table
//	retry.go     clients that try again
//	memory.go    the memory for a subject
//	tally.go     what is counted, in all and by subject
//	timeline.go  what is counted by time, in bounded memory
//	report.go    the report as values, which are also its JSON
//	text.go      the report for a terminal
//	html.go      the report as a page
//	hide.go      hides subjects in reports that others may see
//	progress.go  how far the replay is
//	suggest.go   a limit for the subjects of a log
//	traffic.go   the burst that subjects need at a rate
//
// Nothing here is a model of the server. A request of the log becomes the same requests to the same store as a CL.TAKE,
// and the same code judges it. Tests send logs to a server, and compare each decision.
package replay
