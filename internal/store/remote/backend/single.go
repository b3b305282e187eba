package backend

import (
	"context"

	"cellserver/internal/store/remote/combine"
)

// single is the topology of one server.
type single struct {
	number combine.Primary
	all    []combine.Primary // the one server
	where  string
}

func newSingle(b *Backend) *single {
	where := b.config.Address.Socket
	if where == "" {
		where = b.config.Address.Nodes[0]
	}
	number := b.numberOf(where)
	return &single{number: number, all: []combine.Primary{number}, where: where}
}

func (s *single) primary(string) combine.Primary                           { return s.number }
func (s *single) primaries() []combine.Primary                             { return s.all }
func (s *single) moved(int, string)                                        {}
func (s *single) lost(combine.Primary)                                     {}
func (s *single) probeSlot(combine.Primary) int                            { return 0 }
func (s *single) watch(context.Context)                                    {}
func (s *single) held() <-chan struct{}                                    { return nil }
func (s *single) address(context.Context, combine.Primary) (string, error) { return s.where, nil }
