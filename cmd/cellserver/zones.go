package main

import (
	"fmt"
	"log/slog"

	"cellserver/internal/calendar"
	"cellserver/internal/option"
)

// zoneOptions returns the option of the time zone database.
func (c *config) zoneOptions() []*option.Option {
	return []*option.Option{{Name: "tz-database", Group: option.Limits, Kind: option.Text(&c.tzDatabase, "path"),
		Help: "a folder such as /usr/share/zoneinfo, whose time zone database CL.QUOTA uses if it is newer than the program's",
		Use:  "Set it if a government has changed its clocks since this version was built, and the system knows already."}}
}

// useZones chooses the time zone database of --tz-database if it is newer than the program's.
func (c *config) useZones() (used bool, err error) {
	if c.tzDatabase == "" {
		return false, nil
	}
	if used, err = calendar.Use(c.tzDatabase); err != nil {
		return false, fmt.Errorf("--tz-database: %w; without this option, the time zones are the program's own", err)
	}
	return used, nil
}

// describeZones logs that the database of --tz-database is not used.
func (c *config) describeZones(used bool, log *slog.Logger) {
	if c.tzDatabase != "" && !used {
		version, _ := calendar.Version()
		log.Info("the time zones are the program's own, because --tz-database has no newer ones", "version", version,
			"path", c.tzDatabase)
	}
}
