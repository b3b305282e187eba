package option

// Effect applies options to a running server: Apply applies the current values of the named
// options.
type Effect struct {
	Apply func() error
	Names []string
}

// On is an effect that cannot fail.
func On(apply func(), names ...string) Effect {
	return Effect{func() error { apply(); return nil }, names}
}

// Apply applies all effects, now and after each change of their options.
func (l *List) Apply(effects ...Effect) error {
	for _, e := range effects {
		if err := e.Apply(); err != nil {
			return err
		}
		l.OnChange(e.Apply, e.Names...)
	}
	return nil
}

// The groups of options, in --help and in the documentation, that options of several packages
// belong to.
const (
	Limits      = "Limits"
	Memory      = "Memory"
	Persistence = "Persistence"
	Diagnostics = "Diagnostics"
	Access      = "Access"
	Store       = "Store"
)
