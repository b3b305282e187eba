package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/metric"
)

func TestTake(t *testing.T) {
	a := newAPI(t)
	const exceeded = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":`
	for _, c := range []struct {
		query  string
		status int
		body   string
	}{
		{"both?subject=u", 200, `{"allowed":true,"policy":"both","decided_by":"fixed","shadow":false,` +
			`"limit":2,"remaining":1,"retry_after":-1,"reset_after":60}`},
		{"both?subject=u&quantity=9&mode=upto", 200, `{"allowed":true,"policy":"both","decided_by":"fixed","shadow":false,` +
			`"limit":2,"remaining":0,"retry_after":-1,"reset_after":60,"taken":1}`},
		{"both?subject=u", 429, exceeded + `429,"violated-policies":["both.fixed"],"allowed":false,"policy":"both",` +
			`"decided_by":"fixed","shadow":false,"limit":2,"remaining":0,"retry_after":60,"reset_after":60}`},
		{"both?subject=u&decision=body", 200, `{"allowed":false,"policy":"both","decided_by":"fixed","shadow":false,` +
			`"limit":2,"remaining":0,"retry_after":60,"reset_after":60}`},
		{"named?subject=u&quantity=2", 413, exceeded + `413,"violated-policies":["named"],"allowed":false,` +
			`"policy":"named","decided_by":"fixed","shadow":false,"limit":1,"remaining":1,"retry_after":-1,"reset_after":0}`},
		{"both?subject=evil", 403, `{"type":"about:blank","title":"Forbidden","status":403,"allowed":false,` +
			`"policy":"both","decided_by":"override","shadow":false,"limit":0,"remaining":0,"retry_after":-1,"reset_after":0}`},
		{"named?subject=v&leave=1", 413, exceeded + `413,"violated-policies":["named"],"allowed":false,"policy":"named",` +
			`"decided_by":"fixed","shadow":false,"limit":1,"remaining":1,"retry_after":-1,"reset_after":0}`},
		{"none?subject=u", 404, `{"error":"ERR no such policy 'none'"}`},
		{"both", 400, `{"error":"ERR the query must have a subject"}`},
		{"both?subject=u&mode=x", 400, `{"error":"ERR the mode must be take, peek, upto or force"}`},
		{"both?subject=u&decision=Body", 400, `{"error":"ERR the decision must be body, or not be there"}`},
		{"both?subject=u&id=", 400, `{"error":"ERR token is empty"}`},
		{"both?subject=u&wait=", 400, `{"error":"ERR value is not an integer or out of range: WAIT ms (units are ms, s, m, h and d)"}`},
		{"both?subject=u&leave=x", 400, `{"error":"ERR value is not an integer or out of range: LEAVE n|p%"}`},
		{"both?subject=u&subject=v", 400, `{"error":"ERR the query has the parameter subject twice"}`},
		{"both?subject=u&other=1", 400, `{"error":"ERR the query has an unknown parameter: other"}`},
		{"both?subject=u&quantity=x", 400, `{"error":"ERR value is not an integer or out of range: quantity"}`},
		{"both?subject=%zz", 400, `{"error":"ERR the query is malformed"}`},
		{"both/x?subject=u", 404, `{"error":"ERR there is nothing at this path; GET / lists the paths"}`},
	} {
		status, _, body := a.do(a.request("/v1/take/"+c.query, ""))
		assert.Equal(t, c.status, status, c.query)
		assert.Equal(t, c.body, body, c.query)
	}
}

// TestTakeHolds: charges are corrected once, and each wrong order of calls has its own status.
func TestTakeHolds(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		query  string
		status int
		body   string
	}{
		{"both?subject=h&hold=a&ttl=10m", 200, `{"allowed":true,"policy":"both","decided_by":"fixed","shadow":false,` +
			`"limit":2,"remaining":1,"retry_after":-1,"reset_after":60}`},
		{"both?subject=h&hold=a&ttl=10m", 200, `{"allowed":true,"policy":"both","decided_by":"fixed","shadow":false,` +
			`"limit":2,"remaining":1,"retry_after":-1,"reset_after":60}`},
		{"both?subject=h&quantity=2&hold=a&ttl=10m", 409, `{"error":"HOLDOPEN a hold of another call is open under this ID"}`},
		{"both?subject=h&quantity=0&settle=a", 200, `{"allowed":true,"policy":"both","decided_by":"throttle","shadow":false,` +
			`"limit":3,"remaining":3,"retry_after":-1,"reset_after":0,"taken":-1}`},
		{"both?subject=h&quantity=0&settle=a", 200, `{"allowed":true,"policy":"both","decided_by":"throttle","shadow":false,` +
			`"limit":3,"remaining":3,"retry_after":-1,"reset_after":0,"taken":-1}`},
		{"both?subject=h&quantity=1&settle=a", 409, `{"error":"HOLDSETTLED the hold was settled with 0"}`},
		{"both?subject=h&quantity=1&settle=b", 404, `{"error":"NOHOLD no such hold: nothing was charged under this ID, ` +
			`or it was settled or lapsed long ago"}`},
		{"both?subject=h&quantity=1&settle=b&mode=force", 200, `{"allowed":true,"policy":"both","decided_by":"fixed",` +
			`"shadow":false,"limit":2,"remaining":1,"retry_after":-1,"reset_after":60,"taken":1}`},
		{"both?subject=h&settle=a", 400, `{"error":"ERR settle needs a quantity: what was used in fact"}`},
		{"both?subject=h&hold=a", 400, `{"error":"ERR hold and ttl go together"}`},
		{"both?subject=h&ttl=5", 400, `{"error":"ERR hold and ttl go together"}`},
		{"both?subject=h&hold=c&ttl=x", 400, `{"error":"ERR value is not an integer or out of range: ttl ` +
			`(units are ms, s, m, h and d)"}`},
		{"both?subject=h&hold=&ttl=5", 400, `{"error":"ERR id is empty"}`},
	} {
		status, _, body := a.do(a.request("/v1/take/"+c.query, ""))
		assert.Equal(t, c.status, status, c.query)
		assert.Equal(t, c.body, body, c.query)
	}
}

// TestLapsedHold: a hold that is settled too late is gone.
func TestLapsedHold(t *testing.T) {
	a := newAPI(t)
	status, _, _ := a.do(a.request("/v1/take/both?subject=u&hold=a&ttl=2", ""))
	assert.Equal(t, 200, status)
	a.clock.Advance(2 * time.Second)
	status, _, body := a.do(a.request("/v1/take/both?subject=u&quantity=0&settle=a", ""))
	assert.Equal(t, 410, status)
	assert.Equal(t, `{"error":"HOLDLAPSED the hold has lapsed: what it charged stays charged"}`, body)
}

// TestFieldsOfTake: the fields are the same as with VERBOSE.
func TestFieldsOfTake(t *testing.T) {
	a := newAPI(t)
	_, header, _ := a.do(a.request("/v1/take/both?subject=u", ""))
	assert.Equal(t, `"both.throttle";q=3;w=30, "both.fixed";q=2;w=60`, header.Get("RateLimit-Policy"))
	assert.Equal(t, `"both.throttle";r=2;t=10, "both.fixed";r=1;t=60`, header.Get("RateLimit"))
	assert.Equal(t, "1", header.Get("X-RateLimit-Remaining"))
	assert.Empty(t, header.Get("Retry-After"))
	_, header, _ = a.do(a.request("/v1/take/both?subject=u&quantity=2", ""))
	assert.Equal(t, "60", header.Get("Retry-After"))
	assert.Equal(t, "application/problem+json", header.Get("Content-Type"))
	_, header, _ = a.do(a.request("/v1/take/both?subject=vip", ""))
	assert.Empty(t, header.Get("RateLimit"))
}

// TestToldAsRead: a request gets the same information about a decision as a reply with VERBOSE.
func TestToldAsRead(t *testing.T) {
	for _, subject := range []string{"u", "vip", "evil"} {
		told, read := newAPI(t), newAPI(t)
		for _, c := range []struct{ quantity, mode string }{
			{"1", "TAKE"}, {"2", "TAKE"}, {"9", "TAKE"}, {"9", "UPTO"}, {"2", "PEEK"}, {"1", "FORCE"},
		} {
			query := "?subject=" + subject + "&quantity=" + c.quantity + "&mode=" + c.mode + "&decision=body"
			_, header, body := told.do(told.request("/v1/take/both"+query, ""))
			mode := strings.Replace(`,"`+c.mode+`"`, `,"TAKE"`, "", 1)
			_, reply := read.post(`["CL.TAKE","` + subject + `","both",` + c.quantity + mode + `,"VERBOSE"]`)
			var want struct {
				Decision []int64
				Fields   map[string]string
			}
			require.NoError(t, json.Unmarshal([]byte(reply), &want), reply)
			text, _, _ := strings.Cut(reply, `"decision":`)
			for i, name := range []string{"", "limit", "remaining", "retry_after", "reset_after", "taken"}[:len(want.Decision)] {
				if i > 0 {
					text += `"` + name + `":` + strconv.FormatInt(want.Decision[i], 10) + ","
				}
			}
			assert.Equal(t, strings.TrimSuffix(text, ",")+"}", body, query)
			for name, value := range want.Fields {
				assert.Equal(t, value, header.Get(name), query)
			}
		}
	}
}

// TestTakeWithWait: a call that was not answered at once is answered with its outcome.
func TestTakeWithWait(t *testing.T) {
	a := newAPI(t)
	path := "/v1/take/named?subject=w&wait=60000"
	const want = `{"allowed":true,"policy":"named","decided_by":"fixed","shadow":false,"limit":1,"remaining":0,` +
		`"retry_after":-1,"reset_after":60}`
	_, _, body := a.do(a.request(path, ""))
	require.Equal(t, want, body)
	answer := make(chan string, 1)
	go func() {
		_, header, body := a.do(a.request(path, ""))
		answer <- header.Get("RateLimit") + " " + body
	}()
	isWaiting := func() bool { return strings.Contains(a.operate("INFO clients"), "blocked_clients:1\r\n") }
	require.Eventually(t, isWaiting, time.Minute, time.Millisecond)
	a.clock.Advance(time.Minute)
	a.instance.RunWaiting()
	assert.Equal(t, `"named";r=0;t=60 `+want, <-answer)
}

// TestBodyOfTake: a body has no effect, but the call is made only when the body has arrived, because the call may
// wait longer than a body may take.
func TestBodyOfTake(t *testing.T) {
	a := newAPI(t)
	for length, want := range map[int]int{1: http.StatusOK, 1<<20 + 1: http.StatusRequestEntityTooLarge} {
		subject := strconv.Itoa(length)
		status, _, body := a.do(a.request("/v1/take/named?wait=1&subject="+subject, strings.Repeat("x", length)))
		assert.Equal(t, want, status, body)
		made := strconv.FormatBool(want == http.StatusOK)
		exists := map[string]string{":1\r\n": "true", ":0\r\n": "false"}[a.operate("EXISTS named:{"+subject+"}:fixed")]
		assert.Equal(t, made, exists)
	}
}

// TestPasswordOfDefault: the user default can be named with its password, like any other user.
func TestPasswordOfDefault(t *testing.T) {
	a := newAPI(t)
	a.operate("CONFIG SET requirepass top")
	for password, want := range map[string]int{"top": http.StatusOK, "wrong": http.StatusUnauthorized} {
		a.client.CloseIdleConnections()
		status, _, body := a.do(a.request("/v1/take/both?subject=u", "", as("default", password)))
		assert.Equal(t, want, status, body)
	}
}

func TestRightsToTake(t *testing.T) {
	a := newAPI(t)
	a.operate("ACL SETUSER alice on >secret +@ratelimit ~both:*")
	for query, status := range map[string]int{"both?subject=u": 200, "named?subject=u": 403} {
		got, _, body := a.do(a.request("/v1/take/"+query, "", as("alice", "secret")))
		assert.Equal(t, status, got, body)
	}
	status, _, _ := a.do(a.request("/v1/take/both?subject=u", "", as("alice", "wrong")))
	require.Equal(t, http.StatusUnauthorized, status)
	status, _, _ = a.do(a.request("/v1/take/both?subject=u", "", func(r *http.Request) { r.Method = http.MethodGet }))
	assert.Equal(t, http.StatusMethodNotAllowed, status)
}

// TestDecisionsAreCounted: calls over HTTP count like other clients' calls. When /v1/auth only asks a
// policy for the fields that it shows, this does not count as a decision.
func TestDecisionsAreCounted(t *testing.T) {
	a := newAPI(t)
	a.operate("SET strict:{u}:fixed value")
	for range 2 {
		a.post(`[["CL.TAKE", "u", "named"], ["CL.FIXED", "k", 1, 60], ["CL.ALL", 2, "TAKE", "u", "named", 1, "TAKE", "w", "both", 1]]`)
		a.do(a.request("/v1/take/named?subject=v", ""))
		a.ask("both", "X-User", "u")
		a.ask("new-plan", "X-User", "u")
		a.ask("both,new-plan", "X-User", "x")
		a.ask("strict", "X-User", "u")
	}
	sums, calls, byPolicy := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, group := range a.instance.Metrics {
		var counted metric.Samples
		group.Read(&counted)
		for _, s := range counted.List {
			switch s.Metric.Name {
			case "decisions_total":
				sums[s.Labels[0]] += s.Value
			case "commands_total":
				calls[s.Labels[0]] = s.Value
			case "policy_decisions_total":
				if s.Value > 0 {
					byPolicy[s.Labels[0]+" "+s.Labels[1]] = s.Value
				}
			}
		}
	}
	assert.Equal(t, 2.0, sums["cl.fixed"])
	for command, sum := range sums {
		assert.Equal(t, calls[command], sum, command)
	}
	assert.Equal(t, map[string]float64{
		"named allowed": 2, "named limited": 4, "both allowed": 6, "new-plan allowed": 2, "new-plan shadow": 2,
		"strict error": 2,
	}, byPolicy)
}
