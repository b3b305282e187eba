// Package weblog reads the access logs of web servers and gateways as requests: when each came, from
// whom, and how it was answered.
//
//	format.go    formats by name, and which one a log has
//	pattern.go   lines of text, described as in nginx's log_format
//	fields.go    JSON lines and CSV; the fields of any format by name
//	instant.go   times
//	template.go  subjects, quantities and times as texts with fields in braces
//	parser.go    a line to a Request
//	file.go      lines of bounded length, from plain, gzip and zstd files
//	names.go     subjects, numbered
//	order.go     requests in the order of their times
//	log.go       all files together
//
// # Times
//
// Most logs have times in whole seconds. It would be far from the truth to take all requests of a second as
// simultaneous: a client that sends 50 requests in a second, evenly, is within a limit of 60/s with a burst of 20,
// but 50 at once exceed it. So requests are spread evenly over their second, in the order of the file.
//
// Servers log either the time at which a request ended or the time at which it began. nginx logs the end: if the log
// has $msec and $request_time, the beginning is computed from them. In whole seconds, the difference would be
// meaningless, so the end counts.
//
// Lines may be out of order, because a slow request is logged after a fast one that came later, and because a log may
// consist of the files of several servers. So requests are held back until all lines within a window of time have been
// read. A line that comes even later is counted, and takes effect at the present time of the log.
package weblog
