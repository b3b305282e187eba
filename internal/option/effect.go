package option

// Effect is what options change in a running server. Apply has the present values of the named
// options take effect.
type Effect struct {
	Apply func() error
	Names []string
}

// On is an effect that cannot fail.
func On(apply func(), names ...string) Effect {
	return Effect{func() error { apply(); return nil }, names}
}

// Apply has the options of all effects take effect, now and after each change.
func (l *List) Apply(effects ...Effect) error {
	for _, e := range effects {
		if err := e.Apply(); err != nil {
			return err
		}
		l.OnChange(e.Apply, e.Names...)
	}
	return nil
}

// The groups of options, in which --help and the documentation show them, that several packages
// have options of.
const (
	Limits      = "Limits"
	Memory      = "Memory"
	Diagnostics = "Diagnostics"
	Access      = "Access"
)
