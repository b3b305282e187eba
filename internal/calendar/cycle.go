package calendar

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Cycle says how time is divided into windows that follow one another: by a unit of the calendar in
// a time zone, or by a period. The first period began with the year 1970 in UTC. The zero Cycle
// is invalid.
//
// A Cycle is a number, so that a store can keep it with each key. It is the length of a period in
// microseconds, or else negative: the bitwise complement of the number of a window in windowOf.
// Zones have other numbers in other versions of the program. Outside of the process, a cycle is
// therefore represented by its unit and the name of its zone.
type Cycle int64

const units = int(Year) + 1

// Every returns the cycle of a period, which must be whole microseconds, and at least one.
func Every(period time.Duration) Cycle { return Cycle(period / time.Microsecond) }

// In returns the cycle of a unit in the zone with an IANA name, as the database spells it. ok is
// false if there is no such zone.
func In(u Unit, zone []byte) (c Cycle, ok bool) {
	n, ok := zones().numbers[string(zone)]
	return cycleOf(u, n), ok
}

func cycleOf(u Unit, zone int) Cycle { return ^Cycle(zone*units + int(u)) }

// Restore is In for a cycle that was stored, maybe by a program whose database has other zones. If
// the zone is not in the database of this program, windows of the cycle cannot be computed. ok is
// false for what cannot be the name of a zone, and if there are too many unknown names.
func Restore(u Unit, zone []byte) (c Cycle, ok bool) {
	if c, ok = In(u, zone); ok {
		return c, true
	}
	n, ok := unknown.number(string(zone))
	return cycleOf(u, len(zones().files)+n), ok
}

// Period returns the length of a period, or 0 for a unit of the calendar.
func (c Cycle) Period() time.Duration { return time.Duration(max(c, 0)) * time.Microsecond }

// Unit returns the unit of a cycle that is not a period.
func (c Cycle) Unit() Unit { return Unit(int(^c) % units) }

// Zone returns the name of the zone of a cycle that is not a period.
func (c Cycle) Zone() string {
	n, db := int(^c)/units, zones()
	if n < len(db.files) {
		return db.files[n].name
	}
	return unknown.name(n - len(db.files))
}

// String returns a cycle in the form DAY in Europe/Berlin, or 90s.
func (c Cycle) String() string {
	if c > 0 {
		return c.period()
	}
	return fmt.Sprintf("%s in %s", c.Unit(), c.Zone())
}

// Word returns a cycle as the argument of a command: DAY@Europe/Berlin, or 90s.
func (c Cycle) Word() string {
	if c > 0 {
		return c.period()
	}
	return fmt.Sprintf("%s@%s", c.Unit(), c.Zone())
}

// period returns a period in the largest unit that divides it, or else in milliseconds.
func (c Cycle) period() string {
	for _, unit := range []struct {
		micros Cycle
		name   string
	}{{86400e6, "d"}, {3600e6, "h"}, {60e6, "m"}, {1e6, "s"}} {
		if c%unit.micros == 0 {
			return strconv.FormatInt(int64(c/unit.micros), 10) + unit.name
		}
	}
	return strconv.FormatFloat(float64(c)/1000, 'f', -1, 64) + "ms"
}

// windowOf has the window that was computed last for each cycle of a zone that is in the database.
// So a window is computed once, when the first call after the end of the one before needs it.
var windowOf = sync.OnceValue(func() []atomic.Pointer[window] {
	return make([]atomic.Pointer[window], len(zones().files)*units)
})

// window is a window of a zone: its first second, and the first one after it.
type window struct{ start, end int64 }

// End returns the end of the window that contains an instant. Instants are Unix nanoseconds, from 0
// on. The zone must be in the database.
func (c Cycle) End(now int64) int64 {
	if period := int64(c.Period()); period > 0 {
		return now - now%period + period
	}
	kept, second := &windowOf()[^c], now/int64(time.Second)
	w := kept.Load()
	if w == nil || second < w.start || w.end <= second {
		w = c.window(second)
		kept.Store(w)
	}
	return w.end * int64(time.Second)
}

// Length returns the length of the window that contains an instant, in Unix nanoseconds, from 0 on.
// The zone must be in the database.
func (c Cycle) Length(now int64) time.Duration {
	if period := c.Period(); period > 0 {
		return period
	}
	second := now / int64(time.Second)
	w := windowOf()[^c].Load()
	if w == nil || second < w.start || w.end <= second {
		w = c.window(second)
	}
	return time.Duration(w.end-w.start) * time.Second
}

func (c Cycle) window(second int64) *window {
	z, err := zones().load(int(^c) / units)
	if err != nil {
		panic("the time zone database of the program is damaged: " + err.Error())
	}
	start, end := z.Window(c.Unit(), second)
	return &window{start, end}
}

// names are names of zones that are not in the database, in the order in which they were met.
type names struct {
	mu      sync.Mutex
	all     []string
	numbers map[string]int
}

var unknown names

const (
	maxZoneName = 64   // bytes
	maxUnknown  = 1024 // names, so that made-up ones do not fill the memory
)

func (n *names) number(name string) (number int, ok bool) {
	if !mayBeZone(name) {
		return 0, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if number, ok = n.numbers[name]; ok {
		return number, true
	}
	if len(n.all) == maxUnknown {
		return 0, false
	}
	if n.numbers == nil {
		n.numbers = map[string]int{}
	}
	n.numbers[name] = len(n.all)
	n.all = append(n.all, name)
	return len(n.all) - 1, true
}

func (n *names) name(number int) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[number]
}

// mayBeZone reports whether a name has only characters that names of zones consist of.
func mayBeZone(name string) bool {
	for _, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '/' && c != '_' && c != '-' && c != '+' {
			return false
		}
	}
	return len(name) > 0 && len(name) <= maxZoneName
}
