package limiter

import (
	"bytes"
	"time"

	"cellserver/internal/calendar"
	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

func (l *Family) quota() *command.Command {
	calendar.Prepare()
	row := l.windowed(command.Command{
		Name: limit.Quota.Command(), Complexity: "O(1)",
		Summary: "Counts against a limit per hour, day, week, month or year of a time zone (calendar quota).",
	}, func(c *command.Call) (err error) {
		c.Rule.Kind = limit.Quota
		if c.Rule.Window, err = window.NewCalendarLimit(c.Int()); err != nil {
			return err
		}
		c.Rule.Cycle, err = parseCycle(c.Word())
		return err
	}, limitArg, command.Word("unit"))
	row.Reply = `The unit is HOUR, DAY, WEEK (from Monday), MONTH or YEAR, in UTC unless a time zone follows, as in
DAY@Europe/Berlin; or a period, such as 90s, counted from 1970-01-01 in UTC. ` + limiterReply
	return row
}

const (
	errUnit command.Refusal = "ERR unit must be HOUR, DAY, WEEK, MONTH or YEAR, as in DAY or " +
		"DAY@Europe/Berlin, or a period, as in 90s"
	errZone command.Refusal = "ERR unknown time zone: use a name of the IANA database as it is spelled there, as in " +
		"DAY@Europe/Berlin"
)

// longestUnit is more than the length, in bytes, of the longest unit with a zone. A word may be as
// long as a client sends it.
const longestUnit = 100

// parseCycle parses the unit of a calendar quota: a unit of the calendar, in UTC if no time zone
// follows, or a period.
func parseCycle(word []byte) (calendar.Cycle, error) {
	if len(word) > longestUnit {
		return 0, errUnit
	}
	name, zone, hasZone := bytes.Cut(word, []byte{'@'})
	u, ok := calendar.ParseUnit(name)
	switch {
	case !ok:
		return periodCycle(word)
	case !hasZone:
		zone = utc
	}
	c, ok := calendar.In(u, zone)
	if !ok {
		return 0, errZone
	}
	return c, nil
}

var utc = []byte("UTC")

func periodCycle(word []byte) (calendar.Cycle, error) {
	seconds, isInteger := command.ParseInteger(word, true)
	n, ok := periodNumber(word, seconds, isInteger)
	if !ok {
		return 0, errUnit
	}
	length, ok := quota.Period(n).Nanoseconds(maxPeriod)
	if !ok {
		return 0, &quota.ArgumentError{Name: "period", Lo: 1, Hi: maxPeriod}
	}
	return calendar.Every(time.Duration(length)), nil
}

// quotaRequest reads a calendar quota of CL.ALL: key, limit, unit and quantity.
func quotaRequest(t *store.LimitRequest, words [][]byte) error {
	limit, err := integerBeforeOption("limit", words[1])
	if err != nil {
		return err
	}
	if endsLimiter(words[2]) {
		return errMissing("unit")
	}
	cycle, err := parseCycle(words[2])
	if err != nil {
		return err
	}
	if t.Quantity, err = integerBeforeOption("quantity", words[3]); err != nil {
		return err
	}
	t.Rule.Cycle = cycle
	t.Rule.Window, err = window.NewCalendarLimit(limit)
	return err
}

// integerBeforeOption parses an integer of CL.ALL. If the word is an option, the integer is
// missing.
func integerBeforeOption(name string, word []byte) (int64, error) {
	n, ok := command.ParseInteger(word, true)
	if !ok {
		return 0, errNoNumber(name, word)
	}
	return n, nil
}
