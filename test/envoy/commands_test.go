package envoy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"cellserver/test/certs"
	"cellserver/test/peer"
)

// A reader has the files of docs/envoy.md in a folder, and types its commands there.
type reader struct {
	t         *testing.T
	folder    string
	authority *certs.Authority
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{t: t, folder: t.TempDir()}
	r.has("limits/shop.yaml", block(t, "limits/shop.yaml"))
	r.authority = certs.NewIn(t, r.folder)
	require.NoError(t, os.Rename(r.authority.File, filepath.Join(r.folder, "ca.crt")))
	r.authority.Issue(t, "server")
	r.authority.Issue(t, "tls")
	return r
}

// has writes a file.
func (r *reader) has(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.folder, name)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(r.t, os.WriteFile(path, []byte(text), 0o600))
}

// types returns a command as a shell runs it, after changes.
func (r *reader) types(line string, changes ...string) *exec.Cmd {
	changes = append(changes, "cellserver ", peer.Command().Path+" ")
	cmd := exec.Command("sh", "-c", "exec "+strings.NewReplacer(changes...).Replace(line))
	cmd.Dir = r.folder
	return cmd
}

// starts starts a server on free ports by a command.
func (r *reader) starts(line string, changes ...string) *service {
	r.t.Helper()
	s := &service{port: peer.FreePort(r.t)}
	changes = append(changes, "-port 8081", fmt.Sprint("-port ", s.port))
	s.server = peer.Launch(r.t, r.types(line+fmt.Sprint(" --port ", peer.FreePort(r.t)), changes...))
	s.RateLimitServiceClient = dial(r.t, s.port)
	return s
}

// startsSecured is starts for a command with --grpc-tls-port.
func (r *reader) startsSecured(line string, changes ...string) *secured {
	s := r.starts(line, changes...)
	return &secured{server: s.server, authority: r.authority, address: fmt.Sprint("127.0.0.1:", s.port)}
}

// answers waits until a server that has been started answers a client with this certificate.
func (s *secured) answers(t *testing.T, name string) {
	t.Helper()
	config := s.authority.Client(t, s.authority.Issue(t, name))
	peer.Until(t, "an answer", func() bool { return s.ask(t, config) == codes.OK })
}

// begins has the beginnings of the commands of docs/envoy.md, each with the function that runs such a command, or
// nil if another test does.
var begins = map[string]func(r *reader, line string){
	"cellserver policies check": func(r *reader, line string) {
		output, err := r.types(line).CombinedOutput()
		require.NoError(r.t, err, "%s", output)
	},
	"cellserver --grpc-port 8081 --envoy-config": answersAboutLimits,
	"cellserver --bind":                          answersAboutLimits,
	"cellserver --grpc-port 8081 --envoy-xds":    getsItsLimits,
	"cellserver --grpc-tls-port": func(r *reader, line string) {
		s := r.startsSecured(line)
		s.answers(r.t, "envoy")
		require.Equal(r.t, codes.Unavailable, s.ask(r.t, r.authority.Client(r.t, certs.Pair{})))
	},
	"user gateway": func(r *reader, line string) {
		r.has("users", line+"\n")
		s := r.startsSecured("cellserver --grpc-tls-port 8081 --tls-cert-file server.crt --tls-key-file server.key " +
			"--tls-ca-cert-file ca.crt --envoy-config limits --aclfile users --tls-auth-clients-user CN --grpc-trusted 192.0.2.1")
		s.answers(r.t, "gateway")
		require.Equal(r.t, codes.Unavailable, s.ask(r.t, r.authority.Client(r.t, r.authority.Issue(r.t, "nobody"))))
	},
	"curl": func(r *reader, line string) {
		port := fmt.Sprint(peer.FreePort(r.t))
		s := r.starts("cellserver --grpc-port 8081 --envoy-config limits --envoy-http-port " + port)
		s.ask(r.t, "generic_key=checkout")
		peer.Until(r.t, "an answer over HTTP", func() bool {
			output, err := r.types(line, "8080", port).Output()
			return err == nil && strings.Contains(string(output), `"requestsPerUnit":100`)
		})
	},
	"cellserver ratelimit": nil, // TestImageWithFiles
	"helm upgrade":         nil, // TestCommandsOfDocuments of test/helm
}

func answersAboutLimits(r *reader, line string) {
	_, left := r.starts(line).ask(r.t, "path=/files/1 user=a")
	require.EqualValues(r.t, 19, left)
}

func getsItsLimits(r *reader, line string) {
	p := startPlane(r.t, grpc.Creds(credentials.NewTLS(planeConfig(r.t, r.authority))))
	p.node = "envoy-ratelimit"
	p.send(r.t, limited("shop", 10))
	r.starts(line, "envoy-gateway:18001", fmt.Sprint("localhost:", p.port)).untilLimit(r.t, 10)
}

// Each command of docs/envoy.md does what the page says.
func TestCommandsOfDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/envoy.md")
	require.NoError(t, err)
	ran := map[string]bool{}
	text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(page), "")
	for _, line := range regexp.MustCompile(`(?m)^    \S.*$`).FindAllString(text, -1) {
		line = strings.TrimSpace(line)
		for begin, run := range begins {
			if !strings.HasPrefix(line, begin) {
				continue
			}
			require.False(t, ran[line])
			ran[line] = true
			if run == nil {
				continue
			}
			t.Run(line, func(t *testing.T) {
				r := newReader(t)
				if strings.Contains(line, "--policies") {
					r.has("limits/api.yaml", block(t, "limits/api.yaml"))
					r.has("policies.yaml", block(t, "policies.yaml"))
				}
				run(r, line)
			})
		}
		require.True(t, ran[line], "nothing runs %q", line)
	}
}
