package client

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"cellserver/internal/option"
)

// MemoryLimit is a bound in bytes, or in percent of the memory that there is.
type MemoryLimit struct {
	Bytes   int64
	Percent int64 // 0: Bytes counts
	Auto    bool  // as it is by default; neither counts
}

// ParseMemoryLimit reads a Share as redis.conf writes it, such as 64mb or 5%.
func ParseMemoryLimit(text string) (s MemoryLimit, err error) {
	digits, percent := strings.CutSuffix(text, "%")
	if !percent {
		n, ok := option.ParseSize(text)
		if !ok {
			return s, errNotShare
		}
		return MemoryLimit{Bytes: n}, nil
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	switch {
	case err != nil:
		return s, errNotShare
	case n > 100:
		return s, errors.New("percentage argument must be less or equal to 100")
	}
	return MemoryLimit{Percent: int64(n)}, nil
}

var errNotShare = errors.New("argument must be a memory or percent value")

// String is what CONFIG GET shows.
func (s MemoryLimit) String() string {
	switch {
	case s.Auto:
		return "auto"
	case s.Percent > 0:
		return strconv.FormatInt(s.Percent, 10) + "%"
	}
	return strconv.FormatInt(s.Bytes, 10)
}

// of is the bound in bytes, where there are so many bytes of memory.
func (s MemoryLimit) of(all int64) int64 {
	if s.Percent > 0 && all > 0 {
		return max(all/100*s.Percent, MinMemoryLimit)
	}
	return s.Bytes
}

// What clients may hold by default.
const (
	MinMemoryLimit = 4 << 20 // of little memory, too: some client has to get in, to set it right
	// DefaultClientPercent is a quarter: with as much of keys, and as much again of what the collector has
	// not taken yet, it fits.
	DefaultClientPercent = 25
	// newcomers have a sixteenth of maxmemory, or so many bytes without one.
	newcomersPart  = 16
	newcomersBytes = 16 << 20
)

// SetMaxMemory changes what clients may hold together: percent are of maxmemory, or without one of
// the memory of the machine, or of the container.
func (c *Registry) SetMaxMemory(s MemoryLimit) { c.Holdings.limit.Store(&s) }

// SetMaxMemoryUnauthenticated changes what may be kept for those who have not logged in. Percent
// are as above.
func (c *Registry) SetMaxMemoryUnauthenticated(s MemoryLimit) { c.newcomersLimit.Store(&s) }

// UpdateLimits works the bounds out: they depend on maxmemory, 0 if there is none, and on the memory that
// there is.
func (c *Registry) UpdateLimits(maxMemory, there int64) {
	all := maxMemory
	if all == 0 {
		all = there
	}
	h := &c.Holdings
	h.Most.Store(h.limit.Load().of(all))
	h.Vain.Store(false)
	c.Bound(h.Bytes.Load())
	switch s := *c.newcomersLimit.Load(); {
	case !s.Auto:
		c.Unauthenticated.limit(s.of(all))
	case maxMemory > 0:
		c.Unauthenticated.limit(max(maxMemory/newcomersPart, newcomersBytes/16))
	default:
		c.Unauthenticated.limit(newcomersBytes)
	}
}

// MemoryLimitKind is the kind of option that is a Share.
type MemoryLimitKind struct {
	To   *MemoryLimit
	Auto bool // it may be auto, and then not 0
}

func (k MemoryLimitKind) parse(text string) (MemoryLimit, error) {
	if k.Auto && text == "auto" {
		return MemoryLimit{Auto: true}, nil
	}
	s, err := ParseMemoryLimit(text)
	if err == nil && k.Auto && s == (MemoryLimit{}) {
		err = errors.New("argument must not be 0")
	}
	return s, err
}

func (k MemoryLimitKind) Set(text string) error {
	s, err := k.parse(text)
	if err != nil {
		return errors.New("it must be a size, written like 65536, 512kb, 64mb or 1gb, or percent such as 25%")
	}
	*k.To = s
	return nil
}

func (k MemoryLimitKind) Check(text string) error {
	_, err := k.parse(text)
	return err
}

func (k MemoryLimitKind) String() string {
	if k.To.Percent == 0 && !k.To.Auto {
		return option.FormatSize(int(k.To.Bytes))
	}
	return k.To.String()
}

func (k MemoryLimitKind) Show() string { return k.To.String() }
func (k MemoryLimitKind) Type() string { return "size" }
func (k MemoryLimitKind) Range() string {
	if k.Auto {
		return "auto, a size, 1% to 100%"
	}
	return "a size, 0% to 100%"
}

// AvailableMemory is the memory of the machine, or of the container if that may use less; 0 where the
// system does not tell.
func AvailableMemory() int64 {
	there, container := SystemMemory(), ContainerMemory()
	if container > 0 && (container < there || there == 0) {
		return container
	}
	return there
}

// ContainerMemory is how much the container may use, 0 if there is no limit, or none that can be
// found.
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

// SystemMemory is the memory of the machine, 0 where the system does not tell.
func SystemMemory() (bytes int64) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscanf(string(info), "MemTotal: %d kB", &bytes); err != nil {
		return 0
	}
	return bytes << 10
}
