package faults

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// copied is a copy of a folder that was in use.
type copied struct {
	dir      string
	promised time.Duration // the load's promise before the copy was begun
}

// copies makes copies of the folder of a server under load.
func (l *load) copies(number int, compacts bool) (all []copied) {
	dir := l.t.TempDir()
	l.compacts, l.gentle = compacts, true
	server := peer.Start(l.t, "--dir", dir)
	l.run(server)
	for range number {
		l.awaitPasses(1)
		l.awaitSteps(rand.IntN(1000))
		c := copied{l.t.TempDir(), time.Duration(l.promise.Load())}
		copyFolder(l.t, dir, c.dir)
		all = append(all, c)
	}
	l.kill(server)
	return all
}

// starts starts a server on a copy. If the server does not start, its error must say that the
// folder is damaged.
func (l *load) starts(c copied) (server *peer.Server, ok bool) {
	server, ok = onDisk(l.t, &disk{}, "--dir", c.dir, "--loglevel", "nothing")
	if !ok {
		require.Equal(l.t, 1, server.Wait())
		require.Contains(l.t, server.Stderr(), c.dir+" is damaged: ")
	}
	return server, ok
}

// holds checks the keys of a server that runs on a copy.
func (l *load) holds(server *peer.Server, promised time.Duration) {
	l.t.Helper()
	for _, err := range l.contradictions(l.look(server), promised) {
		require.NoError(l.t, err)
	}
	server.Signal(syscall.SIGKILL)
	server.Wait()
}

// A copy of the folder that is made while a server uses it has all steps that were promised before
// the copy began. If files were replaced meanwhile, a server may refuse the copy, but it never
// starts with older keys or parts of steps.
func TestCopiesOfAFolderInUse(t *testing.T) {
	t.Parallel()
	for _, compacts := range []bool{false, true} {
		l := newLoad(t)
		started, refused := 0, 0
		for _, c := range l.copies(amount(2, 30), compacts) {
			if server, ok := l.starts(c); ok {
				started++
				l.holds(server, c.promised)
			} else {
				refused++
			}
		}
		t.Log(started, "started,", refused, "refused")
		if !compacts {
			require.Zero(t, refused)
		}
	}
}

// After a power failure, files may be truncated or changed. A server refuses such a folder, or has
// the keys as they were at one moment. internal/journal and internal/persist test this for each
// byte: TestEveryCut, TestEveryChangedByte, TestDamage.
func TestDamagedCopies(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(content []byte) []byte{"cut": cut, "changed": change, "zeroed": zero} {
		t.Run(name, func(t *testing.T) {
			l := newLoad(t)
			started, refused := 0, 0
			for _, c := range l.copies(amount(3, 60), rand.IntN(2) == 0) {
				damageAny(t, c.dir, damage)
				if server, ok := l.starts(c); ok {
					started++
					l.holds(server, 0)
				} else {
					refused++
				}
			}
			t.Log(started, "started,", refused, "refused")
		})
	}
}

// damageAny damages the last segment, or another file.
func damageAny(t *testing.T, dir string, damage func([]byte) []byte) {
	files, err := filepath.Glob(filepath.Join(dir, "[js]*"))
	require.NoError(t, err)
	file := files[rand.IntN(len(files))]
	for _, f := range files {
		if strings.HasPrefix(filepath.Base(f), "journal-") && rand.IntN(2) == 0 {
			file = f
		}
	}
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	if len(content) > 0 {
		require.NoError(t, os.WriteFile(file, damage(content), 0o600))
	}
}

func cut(content []byte) []byte { return content[:rand.IntN(len(content))] }

func change(content []byte) []byte {
	content[rand.IntN(len(content))] ^= 1 << rand.IntN(8)
	return content
}

// zero overwrites the end of a file with zeros, as if the size of the file had reached the disk
// before its content.
func zero(content []byte) []byte {
	clear(content[rand.IntN(len(content)):])
	return content
}
