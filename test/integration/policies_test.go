package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// policyFolder is a server with a folder of policies, in which files are replaced as a whole.
type policyFolder struct {
	*peer.Server
	path, log string
	admin     *redis.Client
}

func startWithPolicies(t *testing.T, text string, args ...string) *policyFolder {
	f := &policyFolder{path: t.TempDir(), log: filepath.Join(t.TempDir(), "log")}
	f.replace(t, text)
	log, err := os.Create(f.log)
	require.NoError(t, err)
	t.Cleanup(func() { log.Close() })
	f.Server = peer.StartLogging(t, log, append([]string{"--policies", f.path, "--loglevel", "notice"}, args...)...)
	f.admin = connect(t, &redis.Options{Addr: f.Addr, TLSConfig: f.TLS})
	return f
}

func (f *policyFolder) replace(t *testing.T, text string) {
	next := filepath.Join(f.path, "next")
	require.NoError(t, os.WriteFile(next, []byte(text), 0o600))
	require.NoError(t, os.Rename(next, filepath.Join(f.path, "policies.yaml")))
}

// until waits until the limits of the policy api are these, in the words of CL.POLICY GET.
func (f *policyFolder) until(t *testing.T, limits string) {
	t.Helper()
	peer.Until(t, limits, func() bool { return f.limits(t) == limits })
}

func (f *policyFolder) limits(t *testing.T) string {
	reply, err := f.admin.Do(inTime(t), "CL.POLICY", "GET", "api").Result()
	require.NoError(t, err)
	return strings.Trim(fmt.Sprint(reply.(map[any]any)["limits"]), "[]")
}

// total is a limit in all versions of the policy, so it counts all calls.
const total, totalText = "{name: total, fixed: {limit: 1000000000, period: 30d}}", "total.fixed limit 1000000000, period 30d"

// versions are the versions of the policy: its limits, the text that CL.POLICY GET shows, and the log's line about
// the change to this version.
var versions = []struct{ limits, shows, log string }{
	{total, totalText, ""},
	{"{throttle: {burst: 1000000000, rate: 1000000/1s}}, " + total,
		"throttle burst 1000000000, rate 1000000/1s " + totalText, "throttle: new: burst 1000000000, rate 1000000/1s"},
	{"{sliding: {limit: 1000000000, period: 1h}}, " + total, "sliding limit 1000000000, period 1h " + totalText,
		"throttle -> sliding: begins anew"},
	{"{quota: {limit: 1000000000, per: day}}, " + total, "quota-day limit 1000000000 " + totalText,
		"sliding -> quota-day: begins anew"},
	{"{quota: {limit: 1000000000, per: month}}, " + total, "quota-month limit 1000000000 " + totalText,
		"quota day -> month: begins anew"},
	{"{quota: {limit: 1000000000, per: month@Europe/Berlin}}, " + total,
		"quota-month@Europe/Berlin limit 1000000000 " + totalText, "quota month -> month@Europe/Berlin: begins anew"},
}

func policyOf(limits string) string { return "policies:\n  api: {limits: [" + limits + "]}\n" }

// Policies change while clients call. No call fails, all calls of a transaction are decided by the same
// limits, and a limit that stays has counted each call once.
func TestPoliciesAreReloadedUnderLoad(t *testing.T) {
	t.Run("memory", func(t *testing.T) { reloadUnderLoad(t) })
	t.Run("store", func(t *testing.T) {
		reloadUnderLoad(t, "--store", "redis://"+peer.StartStore(t).Addr, "--store-timeout", "30000")
	})
}

func reloadUnderLoad(t *testing.T, args ...string) {
	f := startWithPolicies(t, policyOf(versions[0].limits), args...)
	var stop atomic.Bool
	var taken [4]int64
	ended := make(chan error, 1)
	go func() {
		ended <- together(len(taken), func(i int) error {
			c := peer.Client(&redis.Options{Addr: f.Addr, TLSConfig: f.TLS, ReadTimeout: patience})
			defer c.Close()
			for !stop.Load() {
				if err := takeTogether(t, c, fmt.Sprint("subject", i)); err != nil {
					return err
				}
				if err := takeAlone(t, c, fmt.Sprint("subject", i)); err != nil {
					return err
				}
				taken[i] += transaction + 1
			}
			return nil
		})
	}()
	for _, v := range versions[1:] {
		f.replace(t, policyOf(v.limits))
		f.until(t, v.shows)
	}
	stop.Store(true)
	require.NoError(t, <-ended)
	for i, n := range taken {
		reply, err := f.admin.Do(inTime(t), "CL.INSPECT", fmt.Sprintf("api:{subject%d}:total.fixed", i)).Result()
		require.NoError(t, err)
		assert.Contains(t, fmt.Sprint(reply), fmt.Sprintf("used:%d]", n))
	}
	for _, v := range versions[1:] { // a change takes effect before it is logged
		untilContains(t, f.log, `msg="policy api: `+v.log+`"`)
	}
}

// transaction is the number of calls of a transaction. It is large, so that policies are likely to change
// while the calls are made.
const transaction = 100

// takeTogether makes a transaction of calls, which the same limits must decide.
func takeTogether(t *testing.T, c *redis.Client, subject string) error {
	replies, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		for range transaction {
			p.Do(t.Context(), "CL.TAKE", subject, "api", 1, "VERBOSE")
		}
		return nil
	})
	if err != nil {
		return err
	}
	limits := map[string]bool{}
	for _, reply := range replies {
		fields := reply.(*redis.Cmd).Val().(map[any]any)
		if fields["allowed"] != true {
			return fmt.Errorf("a call was limited: %v", fields)
		}
		var labels []string
		for label := range fields["limits"].(map[any]any) {
			labels = append(labels, label.(string))
		}
		slices.Sort(labels)
		limits[fmt.Sprint(labels)] = true
	}
	if len(limits) != 1 {
		return fmt.Errorf("calls of one transaction were decided by different limits: %v", limits)
	}
	return nil
}

// takeAlone makes a single call.
func takeAlone(t *testing.T, c *redis.Client, subject string) error {
	reply, err := c.Do(t.Context(), "CL.TAKE", subject, "api").Int64Slice()
	if err == nil && reply[0] != 0 {
		err = fmt.Errorf("a call was limited: %v", reply)
	}
	return err
}

// An invalid file changes nothing, and is reported once. SIGHUP reads the files at once.
func TestInvalidPoliciesChangeNothing(t *testing.T) {
	f := startWithPolicies(t, policyOf(total))
	f.replace(t, policyOf(total)+"  other: {limits: [{fixed: {limit: 1")
	untilContains(t, f.log, "the policies were not reloaded: the last valid ones stay in force")
	assert.Equal(t, totalText, f.limits(t))
	assert.ErrorContains(t, f.admin.Do(inTime(t), "CL.POLICY", "RELOAD").Err(), "policies.yaml:2: not YAML")
	assert.Contains(t, f.admin.Info(inTime(t), "policies").Val(), "policies:1\r\npolicies_failing:1\r\n")
	f.replace(t, policyOf(versions[1].limits))
	f.Signal(syscall.SIGHUP)
	untilContains(t, f.log, `msg="policies reloaded" policies=1 changes=1`)
	assert.Equal(t, versions[1].shows, f.limits(t))
	assert.Contains(t, f.admin.Info(inTime(t), "policies").Val(), "policies:1\r\npolicies_failing:0\r\n")
}
