package transfer

import (
	"fmt"
	"io"

	"cellserver/internal/rdb"
)

// CheckRDB reads a whole RDB file, and describes it to out.
func CheckRDB(out io.Writer, name string) error {
	from, err := openFile(name, out)
	if err != nil {
		return err
	}
	defer from.close()
	r, items := new(report), new(reader)
	err = from.each(func(rec *rdb.Record) error {
		if it, why := items.read(rec); why != "" {
			r.refuse("each a "+why, rec.Key)
		} else if it.holds != nil {
			r.holds += int64(it.holds.Len())
		} else {
			r.written(it.state != nil)
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.libraries = from.libraries()
	fmt.Fprintf(out, "%s is intact\n", name)
	r.print(out, "import can copy")
	return nil
}
