package envoy

import (
	"crypto/sha256"
	"encoding/binary"
)

// Files reads files again, on request and when they change, and has the configuration in force.
type Files struct {
	Current
	Read func() ([]File, error)

	seen  digest // of what the last Look has read
	tried digest // of what was applied or refused last
}

type digest [sha256.Size]byte

// Load reads the files, and applies them.
func (f *Files) Load() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.apply(f.Read())
}

// Look reads the files, and applies them if they have changed and two Looks in succession have read the same content: a
// program may be writing a file in steps. Call Look at regular intervals. It reports files that are refused only once.
func (f *Files) Look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	files, err := f.Read()
	before := f.seen
	f.seen = digestOf(files, err)
	if f.seen != f.tried && f.seen == before {
		f.apply(files, err)
	}
}

// apply puts files in force, or refuses them. f.mu must be locked.
func (f *Files) apply(files []File, err error) {
	f.tried = digestOf(files, err)
	_ = f.replace(func() (*Config, []*Error, error) { // the error is logged
		if err != nil {
			return nil, nil, err
		}
		return Parse(files, f.MergeDomains, f.InForce())
	})
}

func digestOf(files []File, err error) (d digest) {
	h := sha256.New()
	add := func(text []byte) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
		h.Write(text)
	}
	for i := range files {
		add([]byte(files[i].Name))
		add(files[i].Text)
	}
	if err != nil {
		add([]byte(err.Error()))
	}
	h.Sum(d[:0])
	return d
}
