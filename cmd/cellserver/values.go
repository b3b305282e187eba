package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cellserver/internal/commands"
	"cellserver/internal/server"
)

// The kinds of values that options have, each a pflag.Value that says what would be right when it is told what is wrong.

// number is an integer within bounds.
type number struct {
	to        *int
	low, high int
}

func (n number) Set(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil || v < n.low || v > n.high {
		return fmt.Errorf("it must be a number from %d to %d", n.low, n.high)
	}
	*n.to = v
	return nil
}

func (n number) String() string { return strconv.Itoa(*n.to) }
func (n number) Type() string   { return "number" }

// size is a number of bytes, written as in redis.conf: 1k is 1000, 1kb is 1024.
type size struct {
	to        *int
	low, high int
}

// parseSize reads a size; ok is false if it is none, or more than an int can say.
func parseSize(text string) (bytes int, ok bool) {
	n, ok := commands.ParseSize(text)
	return int(n), ok && int64(int(n)) == n
}

var units = []struct {
	suffix string
	bytes  int64
}{{"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}}

// formatSize writes a size as shortly as it can be said.
func formatSize(bytes int) string {
	for _, u := range units {
		if n := int64(bytes); n > 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.Itoa(bytes)
}

func (s size) Set(text string) error {
	v, ok := parseSize(text)
	if !ok || v < s.low || v > s.high {
		return fmt.Errorf("it must be a size from %s to %s, written like 65536, 512kb, 64mb or 1gb", formatSize(s.low), formatSize(s.high))
	}
	*s.to = v
	return nil
}

func (s size) String() string { return formatSize(*s.to) }
func (s size) Type() string   { return "size" }

// choice is one of several words.
type choice struct {
	to    *string
	words []string
}

func (c choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("it must be one of %s", strings.Join(c.words, ", "))
	}
	*c.to = text
	return nil
}

func (c choice) String() string { return *c.to }
func (c choice) Type() string   { return strings.Join(c.words, "|") }

// permissions are a file's, written in octal; "" leaves them to the umask.
type permissions struct{ to *string }

func (p permissions) Set(text string) error {
	if n, err := strconv.ParseUint(text, 8, 32); text != "" && (err != nil || n > 0o777) {
		return fmt.Errorf("it must be permissions in octal, such as 770")
	}
	*p.to = text
	return nil
}

func (p permissions) String() string { return *p.to }
func (p permissions) Type() string   { return "octal" }

// outputClasses are redis.conf's classes of clients, in the order in which they are shown; replica is another name of slave.
var outputClasses = []string{"normal", "slave", "pubsub", "replica"}

// outputLimits are redis.conf's: a class of clients, a hard limit, a soft limit, and the seconds that a client may stay
// beyond the soft one; for several classes, one after the other. A class that is not named keeps what it has. 0 is no limit. There are no
// replicas: their limits are kept, and mean nothing.
type outputLimits struct{ of *[3]server.OutputLimit } // by class: see outputClasses

func (o outputLimits) Set(text string) error {
	fields := strings.Fields(text)
	wrong := fmt.Errorf("it must be a class (normal, pubsub or replica), a hard limit, a soft limit and seconds, such as %q", "normal 256mb 64mb 60")
	if len(fields) == 0 || len(fields)%4 != 0 {
		return wrong
	}
	limits := *o.of
	for four := range slices.Chunk(fields, 4) {
		hard, ok1 := parseSize(four[1])
		soft, ok2 := parseSize(four[2])
		seconds, err := strconv.Atoi(four[3])
		class := slices.Index(outputClasses, four[0])
		if class < 0 || !ok1 || !ok2 || err != nil || seconds < 0 || seconds > maxSeconds {
			return wrong
		}
		if class == len(limits) {
			class = slices.Index(outputClasses, "slave")
		}
		limits[class] = server.OutputLimit{Hard: hard, Soft: soft, SoftFor: inSeconds(seconds)}
	}
	*o.of = limits
	return nil
}

// written is what the limits are, with sizes as size writes them.
func (o outputLimits) written(size func(bytes int) string) string {
	var words []string
	for i, limit := range o.of {
		words = append(words, outputClasses[i], size(limit.Hard), size(limit.Soft), strconv.Itoa(int(limit.SoftFor.Seconds())))
	}
	return strings.Join(words, " ")
}

func (o outputLimits) String() string { return o.written(formatSize) }
func (o outputLimits) Type() string   { return "limits" }

// percentiles are numbers from 0 to 100, with spaces between.
type percentiles struct{ to *[]float64 }

func (p percentiles) Set(text string) error {
	list, err := commands.ParsePercentiles(text)
	if err != nil {
		return fmt.Errorf("it must be numbers from 0 to 100 with spaces between, such as %q", commands.DefaultPercentiles)
	}
	*p.to = list
	return nil
}

func (p percentiles) String() string {
	var words []string
	for _, percent := range *p.to {
		words = append(words, strconv.FormatFloat(percent, 'f', -1, 64))
	}
	return strings.Join(words, " ")
}

func (p percentiles) Type() string { return "percentiles" }

// keyEvents are the letters of notify-keyspace-events.
type keyEvents struct{ to *string }

func (k keyEvents) Set(text string) (err error) {
	*k.to, err = commands.ParseEvents(text)
	return err
}

func (k keyEvents) String() string { return *k.to }

func (k keyEvents) Type() string { return "letters" }
