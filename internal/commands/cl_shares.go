package commands

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"cellserver/internal/option"
)

// Share is a bound in bytes, or in percent of the memory that there is.
type Share struct {
	Bytes   int64
	Percent int64 // 0: Bytes counts
	Auto    bool  // as it is by default; neither counts
}

// ParseShare reads a Share as redis.conf writes it, such as 64mb or 5%.
func ParseShare(text string) (s Share, err error) {
	digits, percent := strings.CutSuffix(text, "%")
	if !percent {
		n, ok := option.ParseSize(text)
		if !ok {
			return s, errNotShare
		}
		return Share{Bytes: n}, nil
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	switch {
	case err != nil:
		return s, errNotShare
	case n > 100:
		return s, errors.New("percentage argument must be less or equal to 100")
	}
	return Share{Percent: int64(n)}, nil
}

var errNotShare = errors.New("argument must be a memory or percent value")

// String is what CONFIG GET shows.
func (s Share) String() string {
	switch {
	case s.Auto:
		return "auto"
	case s.Percent > 0:
		return strconv.FormatInt(s.Percent, 10) + "%"
	}
	return strconv.FormatInt(s.Bytes, 10)
}

// of is the bound in bytes, where there are so many bytes of memory.
func (s Share) of(all int64) int64 {
	if s.Percent > 0 && all > 0 {
		return max(all/100*s.Percent, leastShare)
	}
	return s.Bytes
}

// What clients may hold by default.
const (
	leastShare = 4 << 20 // of little memory, too: some client has to get in, to set it right
	// clientPercent is a quarter: with as much of keys, and as much again of what the collector has not taken yet, it fits.
	clientPercent = 25
	// newcomers have a sixteenth of maxmemory, or so many bytes without one.
	newcomersPart  = 16
	newcomersBytes = 16 << 20
)

// setMaxMemory changes what clients may hold together: percent are of maxmemory, or without one of the memory of the
// machine, or of the container.
func (c *clients) setMaxMemory(s Share) { c.holdings.limit.Store(&s) }

// setMaxMemoryUnauthenticated changes what may be kept for those who have not logged in. Percent are as above.
func (c *clients) setMaxMemoryUnauthenticated(s Share) { c.newcomersLimit.Store(&s) }

// share works the bounds out: they depend on maxmemory, 0 if there is none, and on the memory that there is.
func (c *clients) share(maxMemory, there int64) {
	all := maxMemory
	if all == 0 {
		all = there
	}
	h := &c.holdings
	h.most.Store(h.limit.Load().of(all))
	h.vain.Store(false)
	c.bound(h.bytes.Load())
	switch s := *c.newcomersLimit.Load(); {
	case !s.Auto:
		c.newcomers.limit(s.of(all))
	case maxMemory > 0:
		c.newcomers.limit(max(maxMemory/newcomersPart, newcomersBytes/16))
	default:
		c.newcomers.limit(newcomersBytes)
	}
}

// shareKind is the kind of option that is a Share.
type shareKind struct {
	to   *Share
	auto bool // it may be auto, and then not 0
}

func (k shareKind) parse(text string) (Share, error) {
	if k.auto && text == "auto" {
		return Share{Auto: true}, nil
	}
	s, err := ParseShare(text)
	if err == nil && k.auto && s == (Share{}) {
		err = errors.New("argument must not be 0")
	}
	return s, err
}

func (k shareKind) Set(text string) error {
	s, err := k.parse(text)
	if err != nil {
		return errors.New("it must be a size, written like 65536, 512kb, 64mb or 1gb, or percent such as 25%")
	}
	*k.to = s
	return nil
}

func (k shareKind) Refuse(text string) error {
	_, err := k.parse(text)
	return err
}

func (k shareKind) String() string {
	if k.to.Percent == 0 && !k.to.Auto {
		return option.FormatSize(int(k.to.Bytes))
	}
	return k.to.String()
}

func (k shareKind) Show() string { return k.to.String() }
func (k shareKind) Type() string { return "size" }
func (k shareKind) Range() string {
	if k.auto {
		return "auto, a size, 1% to 100%"
	}
	return "a size, 0% to 100%"
}

// memoryThere is the memory of the machine, or of the container if that may use less; 0 where the system does not tell.
func memoryThere() int64 {
	there, container := systemBytes(), ContainerMemory()
	if container > 0 && (container < there || there == 0) {
		return container
	}
	return there
}

// ContainerMemory is how much the container may use, 0 if there is no limit, or none that can be found.
func ContainerMemory() (bytes int64) {
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // max says that there is no limit
		if err == nil && n > 0 && n < 1<<60 {                               // the older file has a large number for none
			bytes = n
		}
	}
	return bytes
}

// systemBytes is the memory of the machine, 0 where the system does not tell.
func systemBytes() (bytes int64) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscanf(string(info), "MemTotal: %d kB", &bytes); err != nil {
		return 0
	}
	return bytes << 10
}
