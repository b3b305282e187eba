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

// database is the time zone database.
type database struct {
	files   []*zip.File
	numbers map[string]int // of files, by name

	mu     sync.Mutex
	loaded map[int]*Zone // at most maxLoaded
}

// maxLoaded bounds the zones that are kept in memory, of a few KB each. To load a zone takes some
// 30 microseconds, and is necessary only when a window ends (Cycle.End).
const maxLoaded = 64

var zones = sync.OnceValue(openDatabase)

// Prepare opens the database. Otherwise the first call that needs a zone does, which takes 2 ms.
func Prepare() { zones() }

func openDatabase() *database {
	all, err := zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		panic("the time zone database of the program is damaged: " + err.Error())
	}
	db := &database{numbers: map[string]int{}, loaded: map[int]*Zone{}}
	for _, file := range all.File {
		if !file.FileInfo().IsDir() {
			db.numbers[file.Name] = len(db.files)
			db.files = append(db.files, file)
		}
	}
	return db
}

// LoadZone returns the zone with an IANA name, as the database spells it. The error is ErrUnknownZone
// if there is none.
func LoadZone(name string) (*Zone, error) {
	n, known := zones().numbers[name]
	if !known {
		return nil, ErrUnknownZone
	}
	return zones().load(n)
}

// load returns the zone with a number. If too many are loaded, it drops any of them.
func (db *database) load(n int) (z *Zone, err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if z = db.loaded[n]; z != nil {
		return z, nil
	}
	if z, err = readZone(db.files[n]); err != nil {
		return nil, err
	}
	for other := range db.loaded {
		if len(db.loaded) < maxLoaded {
			break
		}
		delete(db.loaded, other)
	}
	db.loaded[n] = z
	return z, nil
}

func readZone(file *zip.File) (*Zone, error) {
	opened, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	data, err := io.ReadAll(opened)
	if err != nil {
		return nil, err
	}
	location, err := time.LoadLocationFromTZData(file.Name, data)
	if err != nil {
		return nil, err
	}
	return &Zone{file.Name, location}, nil
}
