package calendar

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

// The offsets of zones whose rules changed after the release of Go 1.26, which has the database of 2025c.
func TestZonesAreThoseOf2026(t *testing.T) {
	version, path := Version()
	require.Empty(t, path)
	require.True(t, version == "2026f" || isNewer(version, "2026f"), version)
	at := time.Date(2026, time.November, 23, 12, 0, 0, 0, time.UTC)
	for name, hours := range map[string]int{
		"America/Vancouver": -7, "Canada/Pacific": -7, "America/Edmonton": -6, "Canada/Mountain": -6,
		"America/Yellowknife": -6, "America/Inuvik": -6, "America/Winnipeg": -5, "Canada/Central": -5,
		"America/Rainy_River": -5, "America/Havana": -4, "Cuba": -4, "Africa/Casablanca": 0, "Africa/El_Aaiun": 0,
	} {
		require.Equal(t, int64(hours*3600), zone(t, name).span(at.Unix()).offset, name)
		_, end := zone(t, name).Window(Day, at.Unix())
		require.Equal(t, time.Date(2026, time.November, 24, -hours, 0, 0, 0, time.UTC).Unix(), end, name)
	}
}

// textOf returns a compiled zone of the program.
func textOf(t *testing.T, name string) []byte {
	db := openEmbedded()
	text, err := db.files[db.numbers[name]].read()
	require.NoError(t, err)
	return text
}

// folderOf returns a folder with a version and some files.
func folderOf(version string, files map[string][]byte) fstest.MapFS {
	folder := fstest.MapFS{"+VERSION": {Data: []byte(version)}}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: text}
	}
	return folder
}

// A folder's zones replace the program's zones. Zones that the folder does not have remain. Other files in
// such folders are no zones.
func TestFolders(t *testing.T) {
	tokyo := textOf(t, "Asia/Tokyo")
	folder := folderOf("2031a\n", map[string][]byte{
		"Europe/Berlin": tokyo, "America/Argentina/Salta": tokyo, "Moon/Base": tokyo,
		"right/Europe/Berlin": nil, "posix/Europe/Paris": tokyo, "localtime": tokyo, "posixrules": tokyo, "a b": tokyo,
		"zone.tab": tokyo, "leapseconds": []byte("# Leap"), "a/b/c/Deep": tokyo,
	})
	db, err := readFolder(folder, openEmbedded())
	require.NoError(t, err)
	require.Equal(t, "2031a", db.version)
	require.Len(t, db.files, len(openEmbedded().files)+1)
	for name, hours := range map[string]int64{
		"Europe/Berlin": 9, "America/Argentina/Salta": 9, "Moon/Base": 9, "Europe/Paris": 1,
	} {
		z, err := db.load(db.numbers[name])
		require.NoError(t, err)
		require.Equal(t, hours*3600, z.span(1_800_000_000).offset, name)
	}
	delete(folder, "+VERSION")
	folder["tzdata.zi"] = &fstest.MapFile{Data: []byte("# version 2031b\n" + strings.Repeat("R", 1<<20))}
	db, err = readFolder(folder, openEmbedded())
	require.NoError(t, err)
	require.Equal(t, "2031b", db.version, "Debian's file")
}

// hostileFolders returns folders that are refused, by words of the error.
func hostileFolders(t *testing.T) map[string]fs.FS {
	tokyo := textOf(t, "Asia/Tokyo")
	many := map[string][]byte{}
	for i := range maxZones + 1 {
		many[fmt.Sprint("Zone", i)] = tokyo
	}
	longAgo := bytes.ReplaceAll(tokyo, []byte("JST-9"), []byte("JST99"))
	require.NotEqual(t, tokyo, longAgo)
	of := func(name string, text []byte) fs.FS { return folderOf("2031a", map[string][]byte{name: text}) }
	return map[string]fs.FS{
		"no version of a time zone database": fstest.MapFS{"Asia/Tokyo": {Data: tokyo}},
		"is not a version such as 2026f":     folderOf("2026\n", nil),
		"\"2026f2026f":                       folderOf(strings.Repeat("2026f", 100), nil),
		"has more than 65536 bytes":          of("A", slices.Concat(tokyo, make([]byte, 1<<20))),
		"there are more than 2000":           folderOf("2031a", many),
		"A: the time zone is damaged":        of("A", tokyo[:60]),
		"is not the offset of a time zone":   of("A", longAgo),
	}
}

func TestFoldersThatAreRefused(t *testing.T) {
	for words, folder := range hostileFolders(t) {
		_, err := readFolder(folder, openEmbedded())
		require.ErrorContains(t, err, words)
	}
	for _, folder := range []string{"no such folder", "folder_test.go"} {
		_, err := Use(folder)
		require.ErrorContains(t, err, folder)
	}
}

// A file that never ends, a file that has disappeared, and a link to its own folder are no zones.
func TestFilesThatDoNotEnd(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "+VERSION"), []byte("2031a"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "Tokyo"), textOf(t, "Asia/Tokyo"), 0o600))
	require.NoError(t, syscall.Mkfifo(filepath.Join(folder, "Pipe"), 0o600))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(folder, "Zero")))
	require.NoError(t, os.Symlink(".", filepath.Join(folder, "Again")))
	require.NoError(t, os.Symlink("Tokyo", filepath.Join(folder, "Link")))
	db, err := readFolder(os.DirFS(folder), newDatabase())
	require.NoError(t, err)
	var names []string
	for _, file := range db.files {
		names = append(names, file.name)
	}
	slices.Sort(names)
	require.Equal(t, []string{"Link", "Tokyo"}, names)
}

// A folder is used if it is newer than the program.
func TestUse(t *testing.T) {
	t.Cleanup(func() { chosen = nil })
	own := openEmbedded().version
	for version, newer := range map[string]bool{"2025c": false, own: false, "2099a": true} {
		chosen = nil
		folder := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(folder, "+VERSION"), []byte(version), 0o600))
		used, err := Use(folder)
		require.NoError(t, err)
		require.Equal(t, newer, used, version)
		require.Equal(t, newer, chosen != nil && chosen.version == version && chosen.path == folder)
	}
	for _, versions := range [][2]string{
		{"2026f", "2026e"}, {"2027a", "2026z"}, {"2026za", "2026z"}, {"2026zb", "2026za"},
	} {
		require.True(t, isNewer(versions[0], versions[1]))
		require.False(t, isNewer(versions[1], versions[0]))
		require.False(t, isNewer(versions[0], versions[0]))
	}
}
