package calendar

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"errors"
	"io"
	"math"
	"sync"
	"time"
)

// ErrUnknownZone is the error for a name that the database does not have.
var ErrUnknownZone = errors.New("unknown time zone")

// Zone is a time zone. Its methods are safe for concurrent use.
type Zone struct {
	name     string
	location *time.Location
}

// UTC is the zone without offset.
var UTC = &Zone{"UTC", time.UTC}

// Name returns the name of the zone in the database, such as Europe/Berlin.
func (z *Zone) Name() string { return z.name }

// span is a time during which the offset of a zone does not change: the seconds from from to to, without
// to.
type span struct{ from, to, offset int64 }

// span returns the span of an instant.
func (z *Zone) span(now int64) span {
	t := time.Unix(now, 0).In(z.location)
	_, offset := t.Zone()
	s := span{math.MinInt64 / 2, math.MaxInt64 / 2, int64(offset)}
	from, to := t.ZoneBounds()
	if !from.IsZero() {
		s.from = from.Unix()
	}
	if !to.IsZero() {
		s.to = to.Unix()
	}
	if s.to <= now { // go1.26 ends the span of December 31 of leap years where that day begins
		s.to = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return s
}

// zoneinfo is lib/time/zoneinfo.zip of the Go distribution: the compiled time zone database. Package
// time/tzdata contains it too, but time.LoadLocation prefers what is installed on the machine.
//
//go:embed zoneinfo.zip
var zoneinfo []byte

var database = sync.OnceValues(func() (*zip.Reader, error) {
	return zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
})

// LoadZone returns the zone with an IANA name, as the database spells it. The error is ErrUnknownZone
// if there is none.
func LoadZone(name string) (*Zone, error) {
	all, err := database()
	if err != nil {
		return nil, err
	}
	for _, file := range all.File {
		if file.Name != name || file.FileInfo().IsDir() {
			continue
		}
		return readZone(name, file)
	}
	return nil, ErrUnknownZone
}

func readZone(name string, file *zip.File) (*Zone, error) {
	opened, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	data, err := io.ReadAll(opened)
	if err != nil {
		return nil, err
	}
	location, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, err
	}
	return &Zone{name, location}, nil
}
