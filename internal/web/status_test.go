package web_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"cellserver/internal/web"
)

func TestStatusOf(t *testing.T) {
	for reply, status := range map[string]int{
		"NOPERM User bob has no permissions":  http.StatusForbidden,
		"STOREDOWN the store does not answer": http.StatusServiceUnavailable,
		"LOADING":                             http.StatusServiceUnavailable,
		"ERR LOADING":                         http.StatusBadRequest,
		"":                                    http.StatusBadRequest,
	} {
		assert.Equal(t, status, web.StatusOf(reply), reply)
	}
}
