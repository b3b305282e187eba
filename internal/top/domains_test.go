package top

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDomains(t *testing.T) {
	now := sampleAt(0, infoNow+"envoy_domain0:limits=2,ok=4,over_limit=1,name=\"shop\"\n"+
		"envoy_domain1:limits=0,ok=0,over_limit=0,name=\"a \\r\\n\\\"b\"\n")
	assert.Equal(t, `
DOMAINS OF ENVOYS
"shop"               limits: 2; allowed: 4; over the limit: 1
"a \r\n\"b"          limits: 0; allowed: 0; over the limit: 0
`, texts(now.domains(10)))
	assert.Equal(t, "\nDOMAINS OF ENVOYS\nand 2 more\n", texts(now.domains(3)))
	assert.Empty(t, now.domains(2))
	assert.Empty(t, sampleAt(0, infoNow).domains(10))
}
