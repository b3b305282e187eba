package resp

import (
	"bytes"
	"testing"
)

// throttleCall is a CL.THROTTLE of six words, as client libraries send it.
const throttleCall = "*6\r\n$11\r\nCL.THROTTLE\r\n$14\r\nk:000000012345\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n"

func BenchmarkNextPipelined(b *testing.B) {
	const calls = 64
	batch := bytes.Repeat([]byte(throttleCall), calls)
	r := NewReader(DefaultLimits())
	b.ReportAllocs()
	for b.Loop() {
		r.Feed(batch)
		for words, _ := r.Next(); words != nil; words, _ = r.Next() {
		}
		r.Keep()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/calls, "ns/command")
}

// BenchmarkAppendPipelined reads the stream of BenchmarkNextPipelined with Append, 16 calls at a
// time, as a session does.
func BenchmarkAppendPipelined(b *testing.B) {
	const calls, window = 64, 16
	batch := bytes.Repeat([]byte(throttleCall), calls)
	r := NewReader(DefaultLimits())
	words := make([][]byte, 0, window*6)
	b.ReportAllocs()
	for b.Loop() {
		r.Feed(batch)
		for range calls / window {
			words = words[:0]
			for range window {
				words, _ = r.Append(words)
			}
		}
		r.Keep()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/calls, "ns/command")
}

// BenchmarkNextSplit reads the same stream in batches that each end in the middle of a call.
func BenchmarkNextSplit(b *testing.B) {
	const calls = 64
	batch := bytes.Repeat([]byte(throttleCall), calls)
	batch = append(batch[40:], batch[:40]...)
	r := NewReader(DefaultLimits())
	r.Feed([]byte(throttleCall)[:40])
	r.Keep()
	b.ReportAllocs()
	for b.Loop() {
		r.Feed(batch)
		for words, _ := r.Next(); words != nil; words, _ = r.Next() {
		}
		r.Keep()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/calls, "ns/command")
}

func BenchmarkNextInline(b *testing.B) {
	line := []byte("CL.THROTTLE k:000000012345 15 30 60 1\r\n")
	r := NewReader(DefaultLimits())
	for b.Loop() {
		r.Feed(line)
		if words, _ := r.Next(); len(words) != 6 {
			b.Fatal(words)
		}
		r.Keep()
	}
}

func BenchmarkWriteFive(b *testing.B) {
	var w Writer
	b.ReportAllocs()
	for b.Loop() {
		if w.Len() > 4096 {
			w.Reset()
		}
		w.Array(5)
		w.Int(0)
		w.Int(16)
		w.Int(15)
		w.Int(-1)
		w.Int(2)
	}
}

func BenchmarkParseDecimal(b *testing.B) {
	word := []byte("12345")
	for b.Loop() {
		ParseDecimal(word)
	}
}
