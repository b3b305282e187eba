package persist

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"cellserver/internal/rdb"
)

// DefaultRDBName is the default of dbfilename, here and in Redis.
const DefaultRDBName = "dump.rdb"

// folderField is the field of an RDB file that names the folder for which it was written.
const folderField = "cellserver-folder"

// headBytes is the length of the beginning of an RDB file that contains its fields, in bytes.
const headBytes = 4 << 10

// CheckReplaceable returns an error if the folder has a file of this name that neither this process nor
// an earlier one has written with SaveRDB or BeginSaveRDB: its keys may be nowhere else.
func (f *Folder) CheckReplaceable(name string) error {
	writer, err := f.writerOf(name)
	switch {
	case err != nil:
		return withRemedy(err)
	case writer == "":
		return nil
	}
	return fmt.Errorf("%s was written by %s, so it is not replaced: copy its keys with cellserver import, "+
		"and then move it to another folder; or give dbfilename another name", filepath.Join(f.dir, name), writer)
}

// writerOf returns which program wrote an RDB file; "" if it was this program, or if there is no such
// file.
func (f *Folder) writerOf(name string) (string, error) {
	file, err := f.files.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil || size == 0 {
		return "", err
	}
	r := rdb.NewReader(io.NewSectionReader(file, 0, min(size, headBytes)))
	_, _ = r.Next() // a file that is cut off, or of another format, has no fields
	redis, valkey, folder := r.Field("redis-ver"), r.Field("valkey-ver"), r.Field(folderField)
	switch {
	case folder == fmt.Sprintf("%016x", f.identity):
		return "", nil
	case folder != "":
		return "a cellserver with another folder", nil
	case valkey != "":
		return "Valkey " + valkey, nil
	case redis != "":
		return "Redis " + redis, nil
	case r.Field("redis-bits") != "" && r.Field("ctime") != "":
		return "", nil // earlier versions of cellserver wrote only these fields
	}
	return "another program", nil
}

// withRemedy adds to an error of the file system what an operator can do.
func withRemedy(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: let the user of the server own the folder and its files (chown -R), or choose another folder", err)
	case errors.Is(err, errIrregular) || isLink(err):
		return fmt.Errorf("%w: move it to another folder; files of the folder cannot be links, pipes or folders", err)
	}
	return err
}
