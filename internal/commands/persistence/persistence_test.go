package persistence_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/background"
	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/option"
	"cellserver/internal/persist"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// testFolder is a folder that only notes the calls of its methods.
type testFolder struct {
	mu     sync.Mutex
	status persist.Status
	asked  []string
	err    error  // the error of SaveRDB, BeginSaveRDB and Compact
	saving func() // called by SaveRDB; may be nil
}

func (f *testFolder) Status() persist.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

func (f *testFolder) note(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, what)
	return f.err
}

func (f *testFolder) SaveRDB(name string) error {
	if f.saving != nil {
		f.saving()
	}
	return f.note("save " + name)
}

func (f *testFolder) BeginSaveRDB(name string) error { return f.note("begin " + name) }
func (f *testFolder) Compact() error                 { return f.note("compact") }

func (f *testFolder) Flush() error { return f.note("flush") }

func (f *testFolder) SetNoSync(on bool) {
	if on {
		_ = f.note("no sync") // only the other methods fail
	}
}

// change changes the status.
func (f *testFolder) change(change func(s *persist.Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.status)
}

// taken returns what was asked since the last call.
func (f *testFolder) taken() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.asked = nil }()
	return strings.Join(f.asked, ", ")
}

// persistentServer is a server with a folder that is still being loaded.
type persistentServer struct {
	*commandstest.Server
	folder  *testFolder
	stopped chan struct{}
}

func newPersistentServer(t *testing.T) *persistentServer {
	clock := store.NewStillClock(commandstest.Start)
	data := memstore.New(memstore.Options{Clock: clock, SweepEvery: -1})
	t.Cleanup(func() { data.Close() })
	s := &persistentServer{folder: new(testFolder), stopped: make(chan struct{})}
	s.folder.status.RDB.LastSave = commandstest.Start / 1e9
	settings := commands.NewSettings()
	settings.Persistence.Dir, settings.Admin.Protected, settings.Admin.Debug = "/data", "local", "local"
	options := new(option.List)
	require.NoError(t, options.Add(commandstest.ProcessOptions()...))
	require.NoError(t, options.Add(settings.Options()...))
	instance, err := commands.New(commands.Config{Store: data, Folder: s.folder, Settings: settings, Options: options,
		Stop: sync.OnceFunc(func() { close(s.stopped) })})
	require.NoError(t, err)
	s.Server = &commandstest.Server{Server: &sessiontest.Server{Clock: clock, Instance: instance}, Options: options}
	return s
}

const loading = "-LOADING Redis is loading the dataset in memory\r\n"

// While keys are loaded, each call of a row without Redis's flag loading is refused, and does not
// reach the store. Afterwards no call is refused.
func TestLoading(t *testing.T) {
	s := newPersistentServer(t)
	refused := 0
	for _, row := range commandstest.AllRows() {
		answered := row.Flags&command.Loading != 0
		if row.Run == nil || row.Subs != nil || answered && row.Name != "info" {
			continue
		}
		c := s.Connect()
		require.NoError(t, c.Send(commandstest.Encode(commandstest.SampleCall(row, "k"))))
		assert.Equal(t, answered, c.Output() != loading, row.Name)
		refused++
		c.Session.Close()
	}
	require.Greater(t, refused, 80)
	c := s.Connect()
	assert.Contains(t, c.Do(t, "INFO persistence"), "loading:1\r\n")
	assert.Equal(t, "+OK\r\n+OK\r\n$1\r\na\r\n", c.Do(t, "SELECT 1\r\nCLIENT SETNAME x\r\nECHO a"))
	assert.Equal(t, "+OK\r\n"+loading+"-EXECABORT Transaction discarded because of previous errors.\r\n",
		c.Do(t, "MULTI\r\nSET k 1\r\nEXEC"))
	assert.Equal(t, loading+loading, c.Do(t, "CL.THROTTLE k 1 1 1\r\nPING"), "limiters and PING too")
	assert.Equal(t, loading, c.Do(t, "DEBUG RELOAD"))

	s.Instance.Persistence.Loaded()
	assert.Equal(t, ":0\r\n+PONG\r\n", c.Do(t, "DBSIZE\r\nPING"))
	assert.Contains(t, c.Do(t, "INFO persistence"), "loading:0\r\n")
}

// A server without a folder never refuses a call because of a folder, and no turn takes the slow
// path.
func TestNoFolderNoHooks(t *testing.T) {
	s := commandstest.New(t)
	s.Instance.Sample()
	require.False(t, s.Instance.Hooks.Any())
	p := newPersistentServer(t)
	require.True(t, p.Instance.Hooks.Has(command.DataLoading))
	p.Instance.Persistence.Loaded()
	p.Instance.Sample()
	require.False(t, p.Instance.Hooks.Any())
}

// With stop-writes-on-bgsave-error, calls that may write are refused as long as the disk fails.
// Without it, which is the default, they are answered.
func TestDiskFailing(t *testing.T) {
	s := newPersistentServer(t)
	s.Instance.Persistence.Loaded()
	c, queued := s.Connect(), s.Connect()
	fails := func(on int64) {
		s.folder.change(func(st *persist.Status) {
			st.Failure = persist.Failure{Since: on,
				Reason: "no space left on device"}
		})
		s.Instance.Sample()
	}
	fails(5)
	require.Equal(t, "+OK\r\n*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:1\r\n", c.Do(t, "SET k 1\r\nCL.THROTTLE t 1 1 1"))
	require.Equal(t, "+OK\r\n+QUEUED\r\n", queued.Do(t, "MULTI\r\nINCR k"))

	require.Equal(t, "+OK\r\n", c.Do(t, "CONFIG SET stop-writes-on-bgsave-error yes"))
	for _, call := range []string{"SET k 2", "CL.THROTTLE t 1 1 1", "DEL k", "FLUSHALL", "PING"} {
		require.Regexp(t, "^-MISCONF ", c.Do(t, call), call)
	}
	require.Equal(t, "$1\r\n1\r\n", c.Do(t, "GET k"))
	require.Regexp(t, "^-EXECABORT Transaction discarded because of: MISCONF ", queued.Do(t, "EXEC"))
	require.Equal(t, "-ERR EXEC without MULTI\r\n", queued.Do(t, "EXEC"))
	require.Regexp(t, `^\+OK\r\n\+QUEUED\r\n-MISCONF .*\r\n-EXECABORT .* previous errors.\r\n$`,
		c.Do(t, "MULTI\r\nGET k\r\nINCR k\r\nEXEC"))
	require.Contains(t, c.Do(t, "INFO persistence"),
		"journal_failing_since:5\r\njournal_failure:no space left on device\r\n")

	fails(0)
	require.Equal(t, ":2\r\n+PONG\r\n", c.Do(t, "INCR k\r\nPING"))
	s.folder.change(func(st *persist.Status) { st.RDB.LastSaveFailed = true })
	s.Instance.Sample()
	require.Equal(t, ":3\r\n", c.Do(t, "INCR k"), "no file is to be written regularly")
	require.Equal(t, "+OK\r\n", c.Do(t, "CONFIG SET save '3600 1'"))
	require.Regexp(t, "^-MISCONF ", c.Do(t, "INCR k"), "at once")
	require.Equal(t, "+OK\r\n:4\r\n", c.Do(t, "CONFIG SET save ''\r\nINCR k"))
	require.Regexp(t, `^\+OK\r\n-MISCONF `, c.Do(t, "CONFIG SET save '3600 1'\r\nINCR k"))
	s.folder.saving = func() { s.folder.change(func(st *persist.Status) { st.RDB.LastSaveFailed = false }) }
	require.Equal(t, "+OK\r\n:5\r\n", c.Do(t, "SAVE\r\nINCR k"))
}

func TestSaveCommands(t *testing.T) {
	s := newPersistentServer(t)
	s.Instance.Persistence.Loaded()
	c := s.Connect()
	for _, step := range []struct {
		call, reply, asked string
		err                error
	}{
		{"SAVE", "+OK\r\n", "save dump.rdb", nil},
		{"SAVE", "-ERR Background save already in progress\r\n", "save dump.rdb", persist.ErrSaving},
		{"SAVE", "-ERR the keys were not saved: disk full\r\n", "save dump.rdb", errors.New("disk full")},
		{"BGSAVE", "+Background saving started\r\n", "begin dump.rdb", nil},
		{"BGSAVE SCHEDULE", "+Background saving started\r\n", "begin dump.rdb", nil},
		{"BGSAVE", "-ERR Background save already in progress\r\n", "begin dump.rdb", persist.ErrSaving},
		{"BGREWRITEAOF", "+Background append only file rewriting started\r\n", "compact", nil},
		{"BGREWRITEAOF", "-ERR Background append only file rewriting already in progress\r\n", "compact",
			persist.ErrCompacting},
		{"CONFIG SET appendfsync no", "+OK\r\n", "no sync", nil},
		{"DEBUG RELOAD", "+OK\r\n", "save dump.rdb", nil},
		{"DEBUG RELOAD NOSAVE", "+OK\r\n", "", errors.New("disk full")},
		{"DEBUG RELOAD", "-ERR the keys were not saved: disk full\r\n", "save dump.rdb", errors.New("disk full")},
		{"LASTSAVE", ":1767225600\r\n", "", nil},
		{"SHUTDOWN SAVE", "-ERR Errors trying to SHUTDOWN. Check logs.\r\n", "save dump.rdb", errors.New("disk full")},
	} {
		s.folder.err = step.err
		require.Equal(t, step.reply, c.Do(t, step.call), step.call)
		require.Equal(t, step.asked, s.folder.taken(), step.call)
	}
	require.Equal(t, "", c.Do(t, "SHUTDOWN SAVE FORCE"), "whether it can save or not")
	<-s.stopped
	require.True(t, c.Session.Closing())
	require.Equal(t, "save dump.rdb", s.folder.taken())
}

// With a folder, WAITAOF causes a pass, and says whether the changes are on the disk.
func TestWaitAOF(t *testing.T) {
	s := newPersistentServer(t)
	s.Instance.Persistence.Loaded()
	c := s.Connect()
	require.Equal(t, "*2\r\n:1\r\n:0\r\n", c.Do(t, "WAITAOF 1 0 0"))
	require.Equal(t, "flush", s.folder.taken())
	require.Equal(t, "*2\r\n:1\r\n:0\r\n", c.Do(t, "WAITAOF 1 1 60000"))
	require.Equal(t, "flush", s.folder.taken())
	require.Equal(t, "*2\r\n:0\r\n:0\r\n", c.Do(t, "WAITAOF 0 0 0"))
	require.Equal(t, "+OK\r\n+QUEUED\r\n*1\r\n*2\r\n:0\r\n:0\r\n", c.Do(t, "MULTI\r\nWAITAOF 1 0 0\r\nEXEC"))
	require.Equal(t, "", s.folder.taken(), "nothing waits while keys are locked")
	s.folder.err = errors.New("disk full")
	require.Equal(t, "*2\r\n:0\r\n:0\r\n", c.Do(t, "WAITAOF 1 0 0"))
}

// While SAVE waits for the disk, which may not answer, it does not keep other calls from running in the
// background.
func TestSaveHoldsNoSlot(t *testing.T) {
	s := newPersistentServer(t)
	s.Instance.Persistence.Loaded()
	free := 0
	s.folder.saving = func() { free = s.Instance.Background.Free() }
	require.Equal(t, "+OK\r\n", s.Connect().Do(t, "SAVE"))
	require.Equal(t, background.MaxSlots(), free)
}

// SHUTDOWN and SHUTDOWN NOSAVE write no file, nor does SHUTDOWN SAVE while keys are loaded, as in
// Redis.
func TestShutdownDoesNotSave(t *testing.T) {
	for _, call := range []string{"SHUTDOWN", "SHUTDOWN NOSAVE", "SHUTDOWN NOW", "SHUTDOWN SAVE"} {
		s := newPersistentServer(t) // it is loading, and can be stopped nevertheless
		c := s.Connect()
		require.Equal(t, "", c.Do(t, call), call)
		<-s.stopped
		require.Equal(t, "", s.folder.taken(), call)
	}
}

// The file is saved when as many keys have changed, and as much time has passed, as one of the rules
// says. After a failure, the next attempt is made five seconds later.
func TestSaveRules(t *testing.T) {
	s := newPersistentServer(t)
	c := s.Connect()
	require.Equal(t, "+OK\r\n", c.Do(t, "CONFIG SET save '60 10 900 1' dbfilename x.rdb"))
	after := func(changes int64, passes time.Duration) string {
		s.folder.change(func(st *persist.Status) { st.RDB.Changes = changes })
		require.NoError(t, s.Advance(passes))
		s.Instance.Sample()
		return s.folder.taken()
	}
	require.Equal(t, "", after(10, time.Hour), "while it loads")
	s.Instance.Persistence.Loaded()
	require.Equal(t, "begin x.rdb", after(10, 0))
	saved := func(change func(r *persist.RDB)) { s.folder.change(func(st *persist.Status) { change(&st.RDB) }) }
	saved(func(r *persist.RDB) { r.Saving = true })
	require.Equal(t, "", after(10, time.Minute), "while it saves")
	saved(func(r *persist.RDB) {
		r.Saving, r.LastSave = false, (commandstest.Start+int64(time.Hour+time.Minute))/1e9
	})
	require.Equal(t, "", after(10, 59*time.Second))
	require.Equal(t, "", after(9, time.Second))
	require.Equal(t, "begin x.rdb", after(10, 0))
	saved(func(r *persist.RDB) { r.LastSaveFailed = true })
	require.Equal(t, "", after(10, 5*time.Second-1))
	require.Equal(t, "begin x.rdb", after(10, 1))
	saved(func(r *persist.RDB) { r.LastSave, r.LastSaveFailed = s.Clock.Now()/1e9, false })
	require.Equal(t, "", after(0, time.Hour), "nothing has changed")
	require.Equal(t, "begin x.rdb", after(1, 0))
}

// INFO shows the fields that exporters of Redis read.
func TestInfoPersistence(t *testing.T) {
	s := newPersistentServer(t)
	s.folder.status = persist.Status{
		Loading: persist.Loading{StartTime: 7, TotalBytes: 400, LoadedBytes: 100, Elapsed: 2 * time.Second},
		Passes: persist.Passes{Written: 3, LastDuration: 4 * time.Millisecond, LastEntries: 5, LastBytes: 6,
			SyncAge: time.Second},
		Journal: persist.Journal{Enabled: true, Size: 30, BaseSize: 20, LastCompaction: 9 * time.Second,
			CurrentCompaction: -1, Compactions: 2, LastWriteFailed: true},
		RDB: persist.RDB{Saving: true, Changes: 11, LastSave: 12, LastDuration: -1, CurrentDuration: time.Second},
	}
	c := s.Connect()
	text := c.Do(t, "INFO persistence")
	for _, field := range []string{
		"loading:1", "rdb_changes_since_last_save:11", "rdb_bgsave_in_progress:1", "rdb_last_save_time:12",
		"rdb_last_bgsave_status:ok", "rdb_last_bgsave_time_sec:-1", "rdb_current_bgsave_time_sec:1", "aof_enabled:1",
		"aof_rewrite_in_progress:0", "aof_last_rewrite_time_sec:9", "aof_current_rewrite_time_sec:-1",
		"aof_last_bgrewrite_status:ok", "aof_rewrites:2", "aof_last_write_status:err", "aof_current_size:30",
		"aof_base_size:20", "journal_passes:3", "journal_last_pass_usec:4000", "journal_last_pass_keys:5",
		"journal_last_pass_bytes:6", "journal_synced_ms_ago:1000", "journal_failing_since:0", "loading_start_time:7",
		"loading_total_bytes:400", "loading_loaded_bytes:100", "loading_loaded_perc:25.00", "loading_eta_seconds:6",
	} {
		require.Contains(t, text, "\r\n"+field+"\r\n")
	}
	s.Instance.Persistence.Loaded()
	require.NotContains(t, c.Do(t, "INFO persistence"), "loading_")
}
