// Package page opens the page of a server in a real browser.
package page

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/page"
	"cellserver/internal/policy"
	"cellserver/internal/server"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/test/peer"
)

var rewrite = flag.Bool("rewrite", false, "write the screenshots to docs")

// place is a server with a page, on a clock that only the test moves. Each value in ticks makes the server
// send the page a message.
type place struct {
	*testing.T
	clock  *store.StillClock
	client *redis.Client
	web    *httptest.Server
	ticks  chan time.Time
}

// start is the first instant, 2026-01-01 00:00:00 UTC.
const start = 1767225600_000000000

func newPlace(t *testing.T) *place {
	p := &place{T: t, clock: store.NewStillClock(start), ticks: make(chan time.Time)}
	data := memory.New(memory.Options{Clock: p.clock})
	t.Cleanup(func() { data.Close() })
	in, err := commands.New(commands.Config{Store: data, Version: "1.0.0",
		Policies: &commands.PolicyFiles{Read: readPolicies}})
	require.NoError(t, err)
	s, err := server.New(in, server.Config{Settings: server.NewSettings()})
	require.NoError(t, err)
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	go s.Serve(listener)
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	p.client = peer.Client(&redis.Options{Network: "unix", Addr: socket, DisableIdentity: true})
	t.Cleanup(func() { p.client.Close() })
	shown := page.New(page.Config{Instance: in, Settings: page.NewSettings(),
		Patience: time.Hour, Ticks: func() (<-chan time.Time, func()) { return p.ticks, func() {} }})
	p.web = httptest.NewServer(shown)
	t.Cleanup(func() {
		shown.End()
		p.web.Close()
	})
	p.call("ACL", "SETUSER", "admin", "on", ">secret", "~*", "&*", "+@all")
	p.call("ACL", "SETUSER", "viewer", "on", ">secret", "~*", "+info", "+cl.top", "+cl.inspect", "+cl.holders",
		"+cl.policy", "+cl.history")
	return p
}

func readPolicies() ([]policy.File, error) {
	return []policy.File{{Name: "policies.yaml", Text: []byte(`policies:
  api: {limits: [{throttle: {burst: 15, rate: 30/1m}}, {quota: {limit: 1000, per: day@UTC}}]}
  login: {limits: [{fixed: {limit: 5, period: 1m}}], shadow: true}
`)}}, nil
}

func (p *place) call(words ...any) any {
	p.Helper()
	reply, err := p.client.Do(p.Context(), words...).Result()
	require.NoError(p, err, words)
	return reply
}

// second lets a second pass, and waits until the page has drawn the message about it.
func (p *place) second(b *browser) {
	p.Helper()
	p.clock.Advance(time.Second)
	p.ticks <- time.Time{}
	b.until(fmt.Sprintf("previous && previous.time === %d", p.clock.Now()/1e6))
}

// url returns the address of the page, with a user.
func (p *place) url(user string) string {
	return strings.Replace(p.web.URL, "http://", "http://"+user+":secret@", 1)
}

// hostile has names of keys that would do visible damage if the page took them for HTML or for a
// part of the stream.
var hostile = map[string]string{
	"<img src=x onerror=alert(1)>": `"<img src=x onerror=alert(1)>"`,
	"</script><script>alert(1)":    `"</script><script>alert(1)"`,
	"\n\nevent: x\ndata: {}":       `"\n\nevent: x\ndata: {}"`,
	"\xff\xfe\x00caf\xc3\xa9":      `"\xff\xfe\x00caf\xc3\xa9"`,
	`say "hi"\`:                    `"say \"hi\"\\"`,
}

// hitAll calls a limiter with each of the hostile names. Each is limited from the second time on.
func (p *place) hitAll() {
	p.Helper()
	for name := range hostile {
		p.call("CL.THROTTLE", name, 0, 1, 600)
	}
}

// The page shows what happens, and shows names of any bytes as text. The browser reports no problem.
func TestPage(t *testing.T) {
	p, b := newPlace(t), startBrowser(t)
	p.call("CL.FIXED", "user:1", 5, 60, 1)
	p.hitAll()
	b.open(p.url("viewer"))
	b.until("previous")
	for range 2 {
		p.hitAll()
		p.second(b)
	}
	var names []string
	b.get(&names, `[...byId("limited").querySelectorAll("button")].map((b) => b.textContent)`)
	assert.ElementsMatch(t, slices.Collect(maps.Values(hostile)), names)
	var decisions [][]string
	b.get(&decisions, `[...byId("decisions").rows].map((r) => [...r.cells].map((c) => c.textContent))`)
	assert.Equal(t, [][]string{{"CL.FIXED", "0", "0", "–"}, {"CL.THROTTLE", "0", "5.0", "100.0 %"}}, decisions)
	var page struct {
		Status, User, Keys string
		Scripts, Images    int
	}
	b.get(&page, `({status: byId("status").textContent, user: byId("user").textContent,
		keys: byId("tiles").querySelector("div:nth-child(3) dd").firstChild.textContent,
		scripts: document.scripts.length, images: document.images.length})`)
	assert.Equal(t, "live", page.Status)
	assert.Equal(t, `user "viewer"`, page.User)
	assert.Equal(t, "6", page.Keys)
	assert.Equal(t, [2]int{2, 1}, [2]int{page.Scripts, page.Images}, "no name has become an element")
	b.until(`performance.getEntriesByName("first-contentful-paint").length > 0`) // a busy browser paints late
	var paint float64
	b.get(&paint, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
	t.Logf("first paint after %.0f ms", paint)
	assert.Empty(t, b.complaints())
}

// A user can look up a key by its name in a list, and with the keyboard alone. A user without the right to
// delete the key sees why, and the key stays. A user with the right is asked first.
func TestLookUp(t *testing.T) {
	p, b := newPlace(t), startBrowser(t)
	p.hitAll()
	p.hitAll()
	const key = "\xff\xfe\x00caf\xc3\xa9"
	result := func() (text string) {
		b.until(`!byId("result").hidden`)
		b.get(&text, `byId("result-key").textContent + " " + byId("result-kind").textContent + " " + byId("result-summary").textContent`)
		return text
	}
	b.open(p.url("viewer"))
	b.until("previous")
	b.eval(`[...document.querySelectorAll("#limited button")].find((b) => b.textContent.includes("caf")).click()`)
	assert.Equal(t, hostile[key]+" cl.throttle The key expires in 10 min 0 s, when its limit has fully recovered.",
		result())
	b.eval(`byId("delete").click(), byId("confirm-delete").click()`)
	b.until(`byId("lookup-error").textContent === "NOPERM User viewer has no permissions to run the 'del' command"`)
	assert.Equal(t, int64(1), p.call("EXISTS", key))
	require.Len(t, b.complaints(), 1, "the status 403 is shown in the console")

	b.open(p.url("admin"))
	b.until("previous")
	b.press("Tab", 9, "") // to the link that skips to the form
	b.press("Enter", 13, "\r")
	b.press("Tab", 9, "")
	b.do(nil, "Input.insertText", map[string]any{"text": hostile[key]})
	b.press("Enter", 13, "\r")
	result()
	b.press("Tab", 9, "") // to Look up
	b.press("Tab", 9, "") // to Delete
	b.press("Enter", 13, "\r")
	b.until(`byId("confirm").open`)
	var asked string
	b.get(&asked, `byId("confirm-key").textContent`)
	assert.Equal(t, hostile[key], asked)
	assert.Equal(t, int64(1), p.call("EXISTS", key))
	b.press("Tab", 9, "") // from Keep it, which has the focus
	b.press("Enter", 13, "\r")
	b.until(`byId("lookup-notice").textContent === "The key was deleted."`)
	assert.Equal(t, int64(0), p.call("EXISTS", key))
	assert.Empty(t, b.complaints())
}

// The open holds of a key are shown with it: what they have charged, and when they lapse.
func TestHoldsAreShown(t *testing.T) {
	p, b := newPlace(t), startBrowser(t)
	p.call("ACL", "SETUSER", "viewer", "+cl.holds")
	p.call("CL.FIXED", "llm", 10000, 60, 3000, "HOLD", "req-7", "10m")
	p.call("CL.FIXED", "llm", 10000, 60, 1200, "HOLD", "<b>req", "90")
	b.open(p.url("viewer"))
	b.until("previous")
	b.eval(`choose('"llm"')`)
	b.until(`!byId("result").hidden`)
	var shown string
	b.get(&shown, `byId("result").innerText`)
	for _, text := range []string{
		"holds\n2", "held\n4200", "\"<b>req\"\n1,200 for 1 min 30 s", "\"req-7\"\n3,000 for 10 min 0 s",
	} {
		assert.Contains(t, shown, text)
	}
	assert.Empty(t, b.complaints())
}

// The page shows the decisions of each policy, also of a policy without decisions.
func TestDecisionsByPolicyAreShown(t *testing.T) {
	p, b := newPlace(t), startBrowser(t)
	p.call("CL.BAN", "eve", "api", 7200, "guessing")
	b.open(p.url("viewer"))
	b.until("previous")
	for range 3 {
		p.call("CL.TAKE", "eve", "api")
		p.call("CL.TAKE", "alice", "api", 5)
		p.call("CL.TAKE", "alice", "login", 3)
	}
	p.call("CL.TAKE", "alice", "api")
	p.second(b)
	var rows [][]string
	b.get(&rows, `[...byId("by-policy").rows].map((r) => [...r.cells].map((c) => c.textContent))`)
	assert.Equal(t, [][]string{{"api", "3.0", "1.0", "0", "3.0", "0", "100 % of 1"},
		{"login", "1.0", "0", "2.0", "0", "0", "0 % of 1"}}, rows)
	p.second(b)
	b.get(&rows, `[...byId("by-policy").rows].map((r) => [...r.cells].map((c) => c.textContent))`)
	assert.Equal(t, [][]string{{"api", "0", "0", "0", "0", "0", "100 % of 1"},
		{"login", "0", "0", "0", "0", "0", "0 % of 1"}}, rows)
	assert.Empty(t, b.complaints())
}

// The page shows at once what all policies decided before it was opened, adds what they decide, and shows one policy,
// and the minutes of the last day, when they are chosen.
func TestHistoryOfPoliciesIsShown(t *testing.T) {
	p, b := newPlace(t), startBrowser(t)
	p.call("CL.HISTORY", "*") // the history begins
	p.call("CL.TAKE", "alice", "api", 5)
	p.call("CL.TAKE", "alice", "api", 99)
	p.clock.Advance(2 * time.Minute)
	p.call("CL.TAKE", "alice", "login", 9)
	p.clock.Advance(time.Second)
	b.open(p.url("viewer"))
	shows := func(text string) {
		t.Helper()
		b.until(`byId("history-summary").textContent === ` + strconv.Quote(text))
	}
	shows("Decisions of all policies in the last 5 minutes: 1 allowed, 1 shadowed, 1 limited, 0 banned, 0 no decision")
	p.call("CL.TAKE", "bob", "api")
	p.second(b)
	shows("Decisions of all policies in the last 5 minutes: 2 allowed, 1 shadowed, 1 limited, 0 banned, 0 no decision")
	var paths []string
	b.get(&paths, `[...byId("history-chart").querySelectorAll("path")].map((path) => path.getAttribute("class"))`)
	assert.Equal(t, []string{"error-area", "banned-area", "limited-area", "shadow-area", "allowed-area"}, paths)
	choose := func(id, value string) {
		b.eval(fmt.Sprintf("byId(%q).value = %q, byId(%[1]q).dispatchEvent(new Event('change'))", id, value))
	}
	choose("history-policy", "api")
	shows("Decisions of api in the last 5 minutes: 2 allowed, 0 shadowed, 1 limited, 0 banned, 0 no decision")
	choose("history-span", "MINUTES")
	shows("Decisions of api in the last day: 1 allowed, 0 shadowed, 1 limited, 0 banned, 0 no decision")
	p.clock.Advance(time.Minute)
	p.second(b)
	shows("Decisions of api in the last day: 2 allowed, 0 shadowed, 1 limited, 0 banned, 0 no decision")
	assert.Empty(t, b.complaints())
	p.call("ACL", "SETUSER", "viewer", "-cl.history")
	choose("history-policy", "*")
	b.until(`byId("history-error").textContent === "NOPERM User viewer has no permissions to run the 'cl.history' command"`)
}

// The banned subjects of a policy are shown on request.
func TestBansAreShown(t *testing.T) {
	p, b := newPlace(t), startBrowser(t)
	p.call("CL.BAN", "<b>eve", "login", 7200, "guessing")
	b.open(p.url("admin"))
	b.until("previous")
	b.eval(`byId("policies").rows[1].querySelector("button").click()`)
	b.until(`!byId("bans-table").hidden`)
	var rows [][]string
	b.get(&rows, `[...byId("bans").rows].map((r) => [...r.cells].map((c) => c.textContent))`)
	assert.Equal(t, [][]string{{`"<b>eve"`, "2 h 0 min", `"guessing"`}}, rows)
	assert.Empty(t, b.complaints())
}

// In place of something that the user has no right to see, the page shows the server's error.
func TestErrorsAreShown(t *testing.T) {
	p, b := newPlace(t), startBrowser(t)
	p.call("ACL", "SETUSER", "viewer", "-info", "-cl.top")
	b.open(p.url("viewer"))
	b.until("previous")
	for id, command := range map[string]string{"info-error": "info", "limited-error": "cl.top", "seen-error": "cl.top"} {
		var text string
		b.get(&text, `byId("`+id+`").textContent`)
		assert.Equal(t, "NOPERM User viewer has no permissions to run the '"+command+"' command", text)
	}
	p.call("ACL", "DELUSER", "viewer")
	b.until(`byId("status").textContent !== "live"`)
}

// Everything that can be used has a name for screen readers, and no width makes the page scroll sideways.
func TestAccessibility(t *testing.T) {
	p, b := newPlace(t), startBrowser(t)
	p.hitAll()
	p.call("CL.THROTTLE", strings.Repeat("long", 64), 0, 1, 600)
	b.open(p.url("viewer"))
	b.until("previous")
	var tree struct {
		Nodes []struct{ Role, Name struct{ Value any } }
	}
	b.do(&tree, "Accessibility.getFullAXTree", nil)
	seen := map[any]int{}
	for _, n := range tree.Nodes {
		switch role := n.Role.Value; role {
		case "button", "textbox", "link", "table", "image", "region", "heading":
			seen[role]++
			assert.NotEmpty(t, n.Name.Value, role)
		}
	}
	assert.GreaterOrEqual(t, seen["button"], 6)
	assert.Equal(t, 2, seen["textbox"], "a key to find, and a call to explain")
	for _, width := range []int{320, 390, 760, 761, 1280, 2560} {
		b.size(width, 800, width < 500, "light")
		var inner, content int
		b.get(&inner, "innerWidth")
		b.get(&content, "document.documentElement.scrollWidth")
		assert.LessOrEqual(t, content, width)
		assert.Equal(t, width, inner)
	}
}

// TestScreenshots makes the screenshots of docs/page.md, of a server that is used in the same way every
// time, at the same instants.
func TestScreenshots(t *testing.T) {
	p, b := newPlace(t), startBrowser(t)
	p.call("CL.BAN", "crawler", "api", 86400, "ignores refusals")
	b.open(p.url("admin"))
	b.until(`previous && byId("history-summary").textContent.startsWith("Decisions of")`)
	for second := range 130 {
		p.use(second)
		p.second(b)
	}
	b.eval(`choose('"checkout:42"')`)
	b.until(`!byId("result").hidden`)
	for name, shot := range map[string]struct {
		width, height int
		phone         bool
		scheme        string
	}{"light": {1180, 900, false, "light"}, "dark": {1180, 900, false, "dark"}, "phone": {390, 844, true, "light"}} {
		b.size(shot.width, shot.height, shot.phone, shot.scheme)
		b.eval(`window.scrollTo(0, 0), document.activeElement.blur(), document.fonts.ready.then(() => true)`)
		png := b.screenshot(!shot.phone)
		assert.Greater(t, len(png), 20<<10, "a picture with something on it")
		if *rewrite {
			require.NoError(t, os.WriteFile("../../docs/page-"+name+".png", png, 0o644))
		}
	}
	assert.Empty(t, b.complaints())
}

// use makes the calls of a second, whose number varies as visitors come and go.
func (p *place) use(second int) {
	p.Helper()
	wave := 10 + int(6*math.Sin(float64(second)/9))
	pipe := p.client.Pipeline()
	pipe.Do(p.Context(), "CL.TAKE", "crawler", "api")
	for i := range wave {
		pipe.Do(p.Context(), "CL.TAKE", fmt.Sprintf("user:%d", i%12), "api")
		if i%4 == 0 {
			pipe.Do(p.Context(), "CL.TAKE", fmt.Sprintf("user:%d", i%5), "login")
		}
		pipe.Do(p.Context(), "CL.THROTTLE", fmt.Sprintf("user:%d", i%7), 9, 60, 60, 1)
		if i%2 == 0 {
			pipe.Do(p.Context(), "CL.FIXED", fmt.Sprintf("checkout:%d", 40+i%4), 100, 60, 1)
		}
		if i%3 == 0 {
			pipe.Do(p.Context(), "CL.SLIDING", "search:anonymous", 60, 60, 1)
		}
	}
	pipe.Do(p.Context(), "CL.ACQUIRE", "reports", 3, 30, fmt.Sprintf("job-%d", second/7))
	_, err := pipe.Exec(p.Context())
	require.NoError(p, err)
}
