package monitor

import (
	"net/http"
	"net/http/pprof"
)

// Profiles returns the handler of /debug/pprof/, for `go tool pprof`. allow reports whether a request may have
// profiles, and answers it if not. The command line is not among them, because it may contain passwords.
//
// A request that a page in a browser has made is refused: it could make the server work, and other pages
// read the answer if their name leads to this machine (DNS rebinding).
func Profiles(allow func(w http.ResponseWriter, r *http.Request) bool) http.Handler {
	paths := http.NewServeMux()
	paths.HandleFunc("GET /debug/pprof/", pprof.Index)
	paths.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	paths.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	paths.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	paths.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" || r.Header.Get("Origin") != "" {
			http.Error(w, "profiles are not for pages in a browser", http.StatusForbidden)
			return
		}
		if allow(w, r) {
			paths.ServeHTTP(w, r)
		}
	})
}
