// Package page serves a page that shows what the server does, to a browser: decisions per second, the keys
// that are limited most, memory, clients, and one key that is looked up.
//
// Everything that the page shows, and everything that it changes, is the reply to an ordinary command, made
// in a session of the user that has logged in. So the page can do nothing that the user could not do with
// redis-cli, and a call without the right to it is answered, counted and logged as everywhere.
//
// The files of the page are in the folder static, as they are served: there is no build step, and nothing is
// loaded from other hosts.
package page

import (
	"crypto/tls"
	"embed"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"cellserver/internal/client"
	"cellserver/internal/session"
)

// Config holds the parameters of New.
type Config struct {
	Instance *session.Instance
	Settings *Settings
	Log      *slog.Logger // for messages that peers cause, which may be very frequent
	// CertificateUser returns the user that the certificate of a peer names; empty for none. It may be nil.
	CertificateUser func(tls.ConnectionState) string

	// Ticks returns a channel on which a stream's next message becomes due, and a function that releases
	// it. By default, messages are due every second.
	Ticks func() (ticks <-chan time.Time, stop func())
	// Patience is the time that a viewer may take to read a message; by default, ten seconds.
	Patience time.Duration
}

// The bounds of the page. Each viewer holds a connection and a goroutine, and each user that watches a
// session.
const (
	MaxViewers = 64 // streams at once
	maxActions = 16 // calls for single requests at once
)

// Page is an http.Handler.
type Page struct {
	config  Config
	mux     http.ServeMux
	origins *http.CrossOriginProtection
	actions chan struct{} // holds a value for each call that is being made
	ending  chan struct{}
	end     sync.Once

	mu      sync.Mutex
	viewers int
	feeds   map[*client.Account]*feed
}

//go:embed static
var static embed.FS

// New returns the page.
func New(c Config) *Page {
	if c.Ticks == nil {
		c.Ticks = func() (<-chan time.Time, func()) {
			t := time.NewTicker(time.Second)
			return t.C, t.Stop
		}
	}
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Page{config: c, origins: http.NewCrossOriginProtection(), actions: make(chan struct{}, maxActions),
		ending: make(chan struct{}), feeds: make(map[*client.Account]*feed)}
	files, _ := fs.Sub(static, "static") // embedded above
	server := http.FileServerFS(files)
	for _, name := range []string{"/{$}", "/page.css", "/page.js", "/history.js", "/icon.svg"} {
		p.mux.Handle("GET "+name, p.forUsers(func(w http.ResponseWriter, r *http.Request, c *caller) {
			c.Close()
			w.Header().Set("Cache-Control", "no-cache")
			server.ServeHTTP(w, r)
		}))
	}
	p.mux.Handle("GET /stream", p.forUsers(p.stream))
	p.mux.Handle("POST /inspect", p.action(inspect))
	p.mux.Handle("POST /explain", p.action(explain))
	p.mux.Handle("POST /history", p.action(history))
	p.mux.Handle("POST /delete", p.action(remove))
	p.mux.Handle("POST /bans", p.action(bans))
	return p
}

// End ends all streams. It is called before the server of the page waits for its requests.
func (p *Page) End() { p.end.Do(func() { close(p.ending) }) }

// contentPolicy is the Content-Security-Policy: the browser loads nothing from other hosts, runs no script that is
// not in page.js, and shows the page in no frame. So even if the page took the name of a key for HTML, the name
// could do nothing.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if !p.config.Settings.allowsHost(r.Host) {
		fail(w, http.StatusForbidden, "this name of the host is neither localhost nor one of --page-hosts")
		return
	}
	p.mux.ServeHTTP(w, r)
}

// failure is the answer to a request that has failed.
type failure struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, status int, reason string) { answer(w, status, failure{reason}) }

// answer sends a value as JSON.
func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // an error means that the client has gone
}
