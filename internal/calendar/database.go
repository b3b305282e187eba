package calendar

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"io"
	"strings"
	"sync"
	"time"
)

// zoneinfo has the compiled time zone database, and its version in a file named versionFile. `make
// zoneinfo` writes it. Package time/tzdata contains a database too, which is as old as the release of Go,
// and time.LoadLocation prefers what is installed on the machine.
//
//go:embed zoneinfo.zip
var zoneinfo []byte

// versionFile is the name of the file that has the version of a database, such as 2026f.
const versionFile = "+VERSION"

// database is the time zone database.
type database struct {
	version string
	path    string // of the folder; "" if the database is a part of the program
	files   []zoneFile
	numbers map[string]int // of files, by name

	mu     sync.Mutex
	loaded map[int]*Zone // at most maxLoaded
}

// zoneFile is a compiled time zone.
type zoneFile struct {
	name   string
	text   []byte    // nil if it is packed
	packed *zip.File // in the program
}

// maxLoaded bounds the zones that are kept in memory, of a few KB each. To load a zone takes some
// 30 microseconds, and is necessary only when a window ends (Cycle.End).
const maxLoaded = 64

var zones = sync.OnceValue(func() *database {
	if chosen != nil {
		return chosen
	}
	return openEmbedded()
})

// chosen is the database that Use has chosen; nil for the program's.
var chosen *database

// Prepare opens the database. Otherwise the first call that needs a zone does, which takes 2 ms.
func Prepare() { zones() }

// Version returns the version of the database, such as 2026f, and the folder that it is from. path is empty
// if the database is a part of the program.
func Version() (version, path string) { return zones().version, zones().path }

// openEmbedded opens the database that is a part of the program.
func openEmbedded() *database {
	db, err := readArchive(zoneinfo)
	if err != nil {
		panic("the time zone database of the program is damaged: " + err.Error())
	}
	return db
}

func readArchive(archive []byte) (*database, error) {
	all, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	db := newDatabase()
	for _, file := range all.File {
		if file.Name != versionFile {
			db.add(zoneFile{name: file.Name, packed: file})
			continue
		}
		version, err := zoneFile{packed: file}.read()
		if err != nil {
			return nil, err
		}
		db.version = strings.TrimSpace(string(version))
	}
	return db, nil
}

func newDatabase() *database { return &database{numbers: map[string]int{}, loaded: map[int]*Zone{}} }

// add adds a zone, in place of one with the same name.
func (db *database) add(file zoneFile) {
	if n, known := db.numbers[file.name]; known {
		db.files[n] = file
		return
	}
	db.numbers[file.name] = len(db.files)
	db.files = append(db.files, file)
}

// load returns the zone with a number. If too many are loaded, it drops any of them.
func (db *database) load(n int) (z *Zone, err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if z = db.loaded[n]; z != nil {
		return z, nil
	}
	if z, err = db.files[n].zone(); err != nil {
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

func (f zoneFile) zone() (*Zone, error) {
	text, err := f.read()
	if err != nil {
		return nil, err
	}
	location, err := time.LoadLocationFromTZData(f.name, text)
	if err != nil {
		return nil, err
	}
	return &Zone{f.name, location}, nil
}

func (f zoneFile) read() ([]byte, error) {
	if f.packed == nil {
		return f.text, nil
	}
	opened, err := f.packed.Open()
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return io.ReadAll(opened)
}
