package envoy

import (
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
)

// Files has the configuration in force, and reads its files again: on request, and when they change. What it reads is
// a configuration as a whole, or refused as a whole; then the one of before stays in force.
type Files struct {
	Read         func() ([]File, error)
	MergeDomains bool
	Log          *slog.Logger

	inForce atomic.Pointer[Config]
	failing atomic.Bool // the files that were read last were refused
	mu      sync.Mutex  // held while files are read and applied
	seen    digest      // of what the last Look has read
	tried   digest      // of what was applied or refused last
}

type digest [sha256.Size]byte

// InForce returns the configuration in force, which never changes; nil if no files were good yet.
func (f *Files) InForce() *Config { return f.inForce.Load() }

// IsFailing reports whether the files that were read last were refused.
func (f *Files) IsFailing() bool { return f.failing.Load() }

// Load reads the files, and applies them.
func (f *Files) Load() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.apply(f.Read())
}

// Look reads the files, and applies them if they have changed and two Looks in succession have read the same, because
// a program may be writing a file in steps. It is to be called at regular times. Files that are refused are reported
// once.
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

// apply puts files in force, or refuses them, and logs that. f.mu must be locked.
func (f *Files) apply(files []File, err error) {
	f.tried = digestOf(files, err)
	var next *Config
	var warnings []*Error
	if err == nil {
		next, warnings, err = Parse(files, f.MergeDomains, f.InForce())
	}
	if f.failing.Store(err != nil); err != nil {
		f.Log.Error("the configuration of Envoy's rate limits was refused: what was in force stays",
			"error", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	for _, warning := range warnings {
		f.Log.Warn("the configuration of Envoy's rate limits", "at", warning.Error())
	}
	f.inForce.Store(next)
	f.Log.Info("the configuration of Envoy's rate limits is in force", "domains", next.Domains(), "limits", next.Limits())
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
