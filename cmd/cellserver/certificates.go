package main

import (
	"maps"
	"sync"
	"time"

	"cellserver/internal/tlsconfig"
)

// certificates says when the certificates expire that options name.
type certificates struct {
	server *tlsOptions // nil without a port with TLS
	// clients are the TLS options of the connections to other programs. Each new connection reads the files again, so
	// the certificates that the files hold now are the ones in use.
	clients []tlsconfig.ClientOptions
	now     func() int64

	mu   sync.Mutex
	next int64 // when the files are read again
	read tlsconfig.Expiries
}

// rereadEvery is how long what the files have said is taken for what they say, so that scrapes read them rarely.
const rereadEvery = int64(time.Second)

// certificates returns nil if no option names a certificate that is used.
func (c *config) certificates(now func() int64) *certificates {
	found := &certificates{now: now, next: now(), read: tlsconfig.Expiries{}}
	if c.tls.isUsed() {
		found.server = &c.tls
	}
	if c.store.hasTLSFiles() {
		found.clients = append(found.clients, c.store.tls)
	}
	if c.xds.Address != "" && c.xds.TLS == "yes" {
		found.clients = append(found.clients, c.xds.Files)
	}
	if found.server == nil && len(found.clients) == 0 {
		return nil
	}
	return found
}

// expiries returns when the certificates expire, by the names of the options.
func (c *certificates) expiries() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now() >= c.next {
		c.next = c.now() + rereadEvery
		for _, files := range c.clients {
			// A file may be half written: what was read before stays.
			if _, ends, err := files.Load(); err == nil {
				maps.Copy(c.read, ends)
			}
		}
	}
	all := maps.Clone(c.read)
	if c.server != nil {
		maps.Copy(all, *c.server.ends.Load())
	}
	return all
}
