package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCheckStore(t *testing.T) {
	const closed = "127.0.0.1:1" // where nobody listens
	for _, test := range []struct {
		args         []string
		says, prints string
	}{
		{nil, "needs the URL of a store", ""},
		{[]string{"a", "b"}, "needs the URL of a store", ""},
		{[]string{"http://h"}, "the forms are redis://", ""},
		{[]string{"--store-prefix", "{x}", "redis://h"}, "may not contain {", ""},
		{[]string{"redis://" + closed}, "see above", closed + "\n  error              dial tcp"},
		{[]string{"--store-password-file", "/absent", "redis://" + closed}, "see above", "/absent: no such file"},
		{[]string{"redis+cluster://" + closed}, "no node of the cluster says", ""},
		{[]string{"--help"}, "help requested", "redis+sentinel://host,host/master-name"},
	} {
		var out bytes.Buffer
		err := checkStore(test.args, func(string) string { return "" }, &out)
		assert.ErrorContains(t, err, test.says, "%q", test.args)
		assert.Contains(t, out.String(), test.prints, "%q", test.args)
	}
}
