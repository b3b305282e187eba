package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRepliesThatAreTooLong: what is not sent of them is not sent to the next request either, which may be
// another user's: proxies share connections among their clients.
func TestRepliesThatAreTooLong(t *testing.T) {
	a := newAPI(t)
	var calls []string
	for i := range 1000 {
		calls = append(calls, fmt.Sprintf(`["CL.THROTTLE","%s%d",15,30,60]`, strings.Repeat("k", 250), i))
	}
	_, _ = a.post("[" + strings.Join(calls, ",") + "]")
	exceeds := 16<<20/len(a.operate("CL.TOP SEEN 1000")) + 1 // the number of calls whose last reply is too long
	_, reply := a.post("[" + strings.Repeat(`["CL.TOP","SEEN",1000],`, exceeds-1) + `["CL.TOP","SEEN",1000]]`)
	assert.Contains(t, reply, `{"error":"ERR the replies are longer than 16 MiB"}`)
	_, reply = a.post(`["CL.THROTTLE","user",15,30,60]`)
	assert.Equal(t, `[0,16,15,-1,2]`, reply)
}
