package faults

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"cellserver/test/peer"
)

// outage is a fault of the disk that ends again.
type outage struct {
	begin, end func(d *disk, dir string)
	says       string // the error in INFO
	removes    bool   // the fault removes files for good
	heals      bool   // the server ends the fault by writing its files again
}

func fails(f fault) func(d *disk, dir string) { return func(d *disk, _ string) { d.begin(f) } }

func works(d *disk, _ string) { d.end() }

func nothing(*disk, string) {}

// away is what an outage appends to the name of the folder, to rename it.
const away = ".away"

var outages = map[string]outage{
	"full":        {begin: fails(noSpace), end: works, says: "no space left on device"},
	"writes fail": {begin: fails(noWrites), end: works, says: "input/output error"},
	"syncs fail":  {begin: fails(noSyncs), end: works, says: "input/output error"},
	"read-only":   {begin: fails(readOnly), end: works, says: "read-only file system"},
	"part of it":  {begin: limitFiles, end: unlimitFiles, says: "file too large"},
	"renamed": {says: "no such file", begin: func(_ *disk, dir string) { os.Rename(dir, dir+away) },
		end: func(_ *disk, dir string) { os.Rename(dir+away, dir) }},
	"removed": {says: "no such file|was removed", removes: true, begin: func(_ *disk, dir string) { os.RemoveAll(dir) },
		end: func(_ *disk, dir string) { os.Mkdir(dir, 0o700) }},
	"journal removed": {says: "no such file", removes: true, heals: true, begin: removeFiles("journal-*"), end: nothing},
	"all removed": {says: "no such file|was removed", removes: true, heals: true, begin: removeFiles("*"),
		end: nothing},
	"lock removed": {says: "the lock file was removed", heals: true, begin: removeFiles("lock"), end: nothing},
}

// limitFiles lets the journal grow by only a few bytes: one write is cut short, and further writes
// fail.
func limitFiles(d *disk, dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "journal-*"))
	stat, err := os.Stat(files[len(files)-1])
	size := uint64(100)
	if err == nil {
		size += uint64(stat.Size())
	}
	setLimit(d, unix.RLIMIT_FSIZE, size)
}

func unlimitFiles(d *disk, _ string) { setLimit(d, unix.RLIMIT_FSIZE, unix.RLIM_INFINITY) }

// setLimit sets a resource limit of the server's process, and fails if the process has ended.
func setLimit(d *disk, limit int, to uint64) {
	var old unix.Rlimit
	if unix.Prlimit(d.process.Pid, limit, nil, &old) == nil {
		unix.Prlimit(d.process.Pid, limit, &unix.Rlimit{Cur: min(to, old.Max), Max: old.Max}, nil)
	}
}

func removeFiles(pattern string) func(*disk, string) {
	return func(_ *disk, dir string) {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, file := range files {
			os.Remove(file)
		}
	}
}

// While a disk fails, clients are served, and limits are applied. INFO shows the failure, and the
// log has one error. A crash meanwhile loses no step that was promised. When the disk works again,
// all changes are written, and a crash after that does not lose them.
func TestOutages(t *testing.T) {
	t.Parallel()
	for name, o := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "state")
			l := newLoad(t)
			l.gentle = true
			for range amount(1, 5) {
				if !o.removes {
					l.crashDuring(o, dir)
				}
				l.recoverFrom(o, dir)
			}
		})
	}
}

// The messages of the log at the beginning and at the end of an outage.
const (
	isLost    = "changes cannot be written to the disk: they would be lost in a crash"
	isWritten = "changes are written to the disk again"
)

// passesBegun is more than the number of passes that can succeed after their segment was removed: one that runs
// meanwhile, and the first one of the next segment, for which a snapshot has ended the segment.
const passesBegun = 3

// startFailing starts a server under load, and then begins an outage. The outage may spare a segment that begins at
// the same time, and the server has nothing to report then: if passes go on, the outage begins again.
func (l *load) startFailing(o outage, dir string, promised time.Duration) (*peer.Server, *disk) {
	d := &disk{}
	server, ready := onDisk(l.t, d, "--dir", dir)
	require.True(l.t, ready, server.Stderr())
	l.verify(server, promised)
	l.run(server)
	l.awaitPasses(1)
	l.awaitSteps(100)
	begun := l.passes.Load()
	o.begin(d, dir)
	await(l.t, func() bool {
		passes := l.passes.Load()
		if strings.Contains(server.Stderr(), isLost) || l.t.Failed() {
			return true
		}
		if passes >= begun+passesBegun {
			begun = passes
			o.begin(d, dir)
		}
		return false
	})
	return server, d
}

func (l *load) crashDuring(o outage, dir string) {
	server, d := l.startFailing(o, dir, time.Duration(l.promise.Load()))
	l.awaitSteps(1000)
	l.kill(server)
	o.end(d, dir)
}

func (l *load) recoverFrom(o outage, dir string) {
	server, d := l.startFailing(o, dir, time.Duration(l.promise.Load()))
	l.awaitSteps(1000)
	l.end()
	if reply := ask(l.t, server, "INFO persistence")[0]; field(reply, "journal_failing_since") != "0" {
		assert.Regexp(l.t, o.says, field(reply, "journal_failure"))
		assert.InDelta(l.t, time.Now().Unix(), number(field(reply, "journal_failing_since")), patience.Seconds())
		l.refuses(server, o)
	}
	l.run(server)
	o.end(d, dir)
	await(l.t, func() bool { return strings.Contains(server.Log(), isWritten) || l.t.Failed() })
	await(l.t, func() bool { return l.passes.Load() > 0 && !l.failing.Load() || l.t.Failed() })
	ended := int64(now())
	await(l.t, func() bool { return l.promise.Load() > ended || l.t.Failed() })
	l.awaitSteps(100)
	promised := l.kill(server)
	require.Equal(l.t, 1, strings.Count(server.Stderr(), isLost), server.Stderr())
	require.Equal(l.t, 1, strings.Count(server.Log(), isWritten), server.Stderr())
	server = peer.Start(l.t, "--dir", dir, "--loglevel", "nothing")
	l.verify(server, promised)
	server.Signal(syscall.SIGTERM)
	require.Zero(l.t, server.Wait())
}

// refuses checks that writes are refused if, and only if, the option is set. If the server ends the outage itself,
// the outage may be over already, and then nothing is refused.
func (l *load) refuses(server *peer.Server, o outage) {
	const option = "stop-writes-on-bgsave-error"
	ask(l.t, server, "CONFIG SET "+option+" yes")
	var over bool
	await(l.t, func() bool {
		replies := ask(l.t, server, "CL.FIXED refused 1 1000", "GET refused", "INFO persistence")
		over = o.heals && field(replies[2], "journal_failing_since") == "0"
		return over || strings.HasPrefix(replies[0], "-MISCONF") && replies[1] == "nil"
	})
	ask(l.t, server, "CONFIG SET "+option+" no")
	await(l.t, func() bool {
		reply := ask(l.t, server, "DEL refused")[0]
		return reply == "0" || over && reply == "1"
	})
}
