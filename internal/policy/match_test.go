package policy

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// treat is TreatCounted without the number of steps.
func (p *Policy) treat(s Subject) Treatment {
	t, _ := p.TreatCounted(s)
	return t
}

func TestSubjects(t *testing.T) {
	p := one(t, network)
	for text, want := range map[string]string{
		"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "::FFFF:0a01:0203": "10.1.2.3",
		"2001:DB8:0:0::1": "2001:db8::1", "2001:db8:0000:0000:0000:0000:0000:0001": "2001:db8::1", "::": "::",
		// No addresses.
		"10.1.2": "10.1.2", "010.1.2.3": "010.1.2.3", "10.1.2.3:80": "10.1.2.3:80", "[::1]": "[::1]",
		"10.1.2.3 ": "10.1.2.3 ", "": "", "alice": "alice",
		"ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.2555": "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.2555",
	} {
		require.Equal(t, want, string(p.Subject([]byte(text)).Text))
	}
	plain := one(t, "{limits: [{fixed: {limit: 1, period: 1s}}]}")
	require.Equal(t, "2001:DB8:0:0::1", string(plain.Subject([]byte("2001:DB8:0:0::1")).Text), "without networks")
}

func TestOverrides(t *testing.T) {
	p := one(t, `{limits: [{fixed: {limit: 1, period: 1s}}], overrides: [
		{subject: "10.1.*", blocked: true}, {cidr: [10.0.0.0/8, "2001:db8::/32"], unlimited: true},
		{subject: "partner-*", limits: [{fixed: {limit: 2, period: 1s}}]}, {subject: "2001:db9::1", blocked: true},
		{subject: "[ab]?", blocked: true}, {cidr: ["::/0"], limits: [{fixed: {limit: 3, period: 1s}}]}]}`)
	for text, want := range map[string]int{
		"alice": -1, "partner-": 2, "partner-a": 2, "a-partner-": -1, "Partner-a": -1, "a1": 4, "a12": -1,
		"10.1.2.3": 0, "10.2.0.0": 1, "::ffff:10.1.2.3": 0, "::ffff:10.2.2.3": 1, "11.0.0.1": -1, "10.2.0.0/8": -1,
		"2001:DB8::7": 1, "2001:DB9:0::1": 3, "::1": 5, "": -1,
	} {
		got := p.treat(p.Subject([]byte(text)))
		require.Equal(t, want, got.Override, text)
		if want < 0 {
			require.Equal(t, Treatment{Effect: Limited, Limits: p.Limits, Override: -1}, got)
			continue
		}
		require.Equal(t, Treatment{Effect: p.Overrides[want].Effect, Limits: p.Overrides[want].Limits, Override: want}, got)
	}
}

// Each form of an address is one subject, and is in a network if the address is.
func TestAddresses(t *testing.T) {
	p := one(t, network)
	rapid.Check(t, func(t *rapid.T) {
		v4 := [4]byte{byte(rapid.IntRange(9, 11).Draw(t, "first")), rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c"), 1}
		address := netip.AddrFrom4(v4)
		mapped := netip.AddrFrom16(address.As16())
		subject := p.Subject([]byte(address.String()))
		for _, form := range []string{mapped.String(), mapped.StringExpanded(), strings.ToUpper(mapped.String())} {
			require.Equal(t, subject, p.Subject([]byte(form)))
		}
		got := p.treat(subject)
		require.Equal(t, v4[0] == 10, got.Effect == Unlimited)
	})
}

// An address is the same with a zone, however long the zone is, because a client may add one.
func TestZones(t *testing.T) {
	p := one(t, network)
	for _, zone := range []string{"%eth0", "%25eth0", "%", "%" + strings.Repeat("x", 1000), "%:", "%a%b"} {
		require.Equal(t, p.Subject([]byte("fe80::1")), p.Subject([]byte("FE80::1"+zone)), zone)
		for _, form := range []string{"10.1.2.3", "::ffff:10.1.2.3", "::FFFF:0a01:0203"} {
			require.Equal(t, p.Subject([]byte("10.1.2.3")), p.Subject([]byte(form+zone)), form+zone)
		}
	}
	for _, other := range []string{"%eth0", "x%eth0", "10.1.2.3:80%eth0", strings.Repeat("0", maxAddress+1) + "%x"} {
		require.Equal(t, Subject{Text: []byte(other)}, p.Subject([]byte(other)))
	}
}

// Comparing a subject with patterns is bounded. 100 patterns on 1,000 bytes are within the bound, and a subject
// beyond the bound is blocked.
func TestCostlySubjects(t *testing.T) {
	overrides := func(n int, pattern string) *Policy {
		text := "{limits: [{fixed: {limit: 1, period: 1s}}], overrides: ["
		for i := range n {
			text += "{subject: '*" + strings.Repeat("x", i) + pattern + "', blocked: true}, "
		}
		return one(t, text+"]}")
	}
	p := overrides(100, "y")
	long := p.Subject(bytes.Repeat([]byte("a"), 1000))
	require.Equal(t, Treatment{Effect: Limited, Limits: p.Limits, Override: -1}, p.treat(long))
	blocked := Treatment{Effect: Blocked, Override: -1}
	require.Equal(t, blocked, p.treat(p.Subject(bytes.Repeat([]byte("a"), 10_000))))
	p = overrides(1, strings.Repeat("a*", 20)+"b")
	require.Equal(t, blocked, p.treat(p.Subject(bytes.Repeat([]byte("a"), 1_000_000))))
}

// Every policy is found by its name, even if names share a slot.
func TestPoliciesAreFound(t *testing.T) {
	text, names := "policies:\n", []string{}
	for i := range 1000 {
		names = append(names, "plan-"+strings.Repeat("x", i%40)+strconv.Itoa(i))
		text += "  " + names[i] + ": {limits: [{fixed: {limit: 1, period: 1s}}]}\n"
	}
	set, err := Parse([]File{{Name: "p.yaml", Text: []byte(text)}}, Options{})
	require.NoError(t, err)
	for _, name := range names {
		require.Equal(t, name, set.Policy([]byte(name)).Name)
		require.Nil(t, set.Policy([]byte(name+" ")))
	}
	for _, name := range []string{"", "p", "plan-", "plan-y0"} {
		require.Nil(t, set.Policy([]byte(name)), name)
		require.Nil(t, new(Set).Policy([]byte(name)), name)
	}
}

// No subject takes more steps than MostSteps says, which decides whether a call may be made on an event loop.
func TestMostSteps(t *testing.T) {
	patterns := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("aab*?[]^-\\")), 1, 30, -1), 1, 5)
	rapid.Check(t, func(t *rapid.T) {
		var p Policy
		for _, pattern := range patterns.Draw(t, "patterns") {
			o := Override{Pattern: pattern}
			fixed, perByte := o.mostSteps()
			p.Overrides = append(p.Overrides, o)
			p.fixedSteps, p.byteSteps = p.fixedSteps+fixed, p.byteSteps+perByte
		}
		subject := bytes.Repeat([]byte("a"), rapid.IntRange(0, 300).Draw(t, "n"))
		subject = append(subject, rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 5, -1).Draw(t, "end")...)
		_, steps := p.TreatCounted(Subject{Text: subject})
		require.LessOrEqual(t, steps, p.MostSteps(len(subject)))
	})
	p := one(t, "{limits: [{fixed: {limit: 1, period: 1s}}], overrides: [{subject: 'partner-*', blocked: true}]}")
	require.Equal(t, p.MostSteps(1000), p.MostSteps(1), "a subject is compared with the beginning of the pattern alone")
}
