//go:build linux

package packaging

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// The pool reaches its store, with a password from a file, and nothing else does. The store keeps
// its keys.
func TestComposeStore(t *testing.T) {
	file := composition(t, "deploy/compose-store.yaml")
	server, store, app := file.Services["cellserver"], file.Services["store"], file.Services["app"]
	require.Greater(t, server.Deploy.Replicas, 1)
	require.True(t, file.Networks["store"].Internal)
	require.Equal(t, []string{"clients", "store"}, server.Networks)
	require.Equal(t, []string{"store"}, store.Networks)
	require.Equal(t, []string{"clients"}, app.Networks)
	require.Contains(t, app.Command[2], "redis-cli -h cellserver ")
	for _, service := range []composed{server, store} {
		require.Equal(t, []string{"store-password"}, service.Secrets)
	}
	require.Equal(t, "/run/secrets/store-password", server.Environment["CELLSERVER_STORE_PASSWORD_FILE"])
	require.Contains(t, read(t, ".gitignore"), "/deploy/"+file.Secrets["store-password"].File+"\n")
	require.Equal(t, "service_healthy", server.DependsOn["store"].Condition)
	require.Equal(t, append([]string{"CMD"}, storePing...), store.Healthcheck.Test)
	require.Equal(t, []string{"store:/data"}, store.Volumes)
	require.Contains(t, file.Volumes, "store")
	require.Equal(t, "512m", store.MemLimit, "more than maxmemory")
}

// storePing is the command of every health check of a store. PING fails while the store loads its
// keys.
var storePing = []string{"valkey-cli", "-e", "PING"}

// The store has a volume and a secret, and only labelled clients reach it.
func TestKubernetesStore(t *testing.T) {
	found := objects(t, "deploy/kubernetes-store.yaml")
	set, service, policy := found["StatefulSet"], found["Service"], found["NetworkPolicy"]
	require.Equal(t, 1, *set.Spec.Replicas)
	require.Equal(t, service.Metadata.Name, set.Spec.ServiceName)
	require.Equal(t, nameLabel(set), service.Spec.Selector)
	require.Equal(t, map[string]any{"matchLabels": nameLabel(set)}, policy.Spec.PodSelector)
	require.Equal(t, []string{"Ingress", "Egress"}, policy.Spec.PolicyTypes)
	require.Len(t, policy.Spec.Ingress, 1)
	require.Equal(t, podsWith("cellserver-store-client", "true"), policy.Spec.Ingress[0]["from"])
	require.Empty(t, policy.Spec.Egress)
	p := set.Spec.Template.Spec
	c := p.Containers[0]
	for _, probe := range []probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		require.Equal(t, storePing, probe.Exec.Command)
	}
	require.Equal(t, set.Spec.VolumeClaimTemplates[0].Metadata.Name, c.VolumeMounts[0].Name)
	require.Equal(t, "/data", c.VolumeMounts[0].MountPath)
	require.Equal(t, p.SecurityContext.RunAsUser, p.SecurityContext.FSGroup)
	require.Equal(t, c.Ports[0].Name, service.Spec.Ports[0].TargetPort)
	checkSecret(t, p, c)
}

func podsWith(label, value string) []any {
	return []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{label: value}}}}
}

// checkSecret checks that a container can read the store's password.
func checkSecret(t *testing.T, p pod, c kubernetesContainer) {
	t.Helper()
	volume, mount := p.Volumes[0], c.VolumeMounts[len(c.VolumeMounts)-1]
	require.Equal(t, "cellserver-store", volume.Secret.SecretName)
	require.Equal(t, 0o440, volume.Secret.DefaultMode)
	require.NotZero(t, p.SecurityContext.FSGroup, "the group of the secret's files")
	require.Equal(t, volume.Name, mount.Name)
	require.Equal(t, "/run/secrets/store", mount.MountPath)
	require.True(t, mount.ReadOnly)
}

// The pool's pods and the pods with a sidecar may connect to the store, find it by its name, and
// have its password.
func TestKubernetesOnStore(t *testing.T) {
	store := objects(t, "deploy/kubernetes-store.yaml")["Service"]
	pool := objects(t, "deploy/kubernetes-store-pool.yaml")["Deployment"]
	sidecar := objects(t, "deploy/kubernetes-store-sidecar.yaml")["Deployment"]
	require.Equal(t, "127.0.0.1", sidecar.Spec.Template.Spec.InitContainers[0].environment()["CELLSERVER_BIND"])
	require.Equal(t, "Always", sidecar.Spec.Template.Spec.InitContainers[0].RestartPolicy)
	for o, c := range map[*object]kubernetesContainer{
		&pool: pool.Spec.Template.Spec.Containers[0], &sidecar: sidecar.Spec.Template.Spec.InitContainers[0],
	} {
		variables := c.environment()
		require.Equal(t, "redis://limits@"+store.Metadata.Name+":6379", variables["CELLSERVER_STORE"])
		require.Equal(t, "/run/secrets/store/password", variables["CELLSERVER_STORE_PASSWORD_FILE"])
		require.Equal(t, "true", o.Spec.Template.Metadata.Labels["cellserver-store-client"])
		require.Greater(t, *o.Spec.Replicas, 1)
		require.NotContains(t, variables, "CELLSERVER_DIR")
		checkSecret(t, o.Spec.Template.Spec, c)
	}
}

// The pool always has a pod while it is updated or a node is drained, and only labelled clients reach
// it.
func TestKubernetesPool(t *testing.T) {
	found := objects(t, "deploy/kubernetes-store-pool.yaml")
	pool, service, policy := found["Deployment"], found["Service"], found["NetworkPolicy"]
	own := map[string]any{"matchLabels": nameLabel(pool)}
	require.Zero(t, *pool.Spec.Strategy.RollingUpdate.MaxUnavailable)
	require.Equal(t, 1, pool.Spec.Strategy.RollingUpdate.MaxSurge)
	require.Equal(t, 1, *found["PodDisruptionBudget"].Spec.MaxUnavailable)
	require.Equal(t, own, found["PodDisruptionBudget"].Spec.Selector)
	require.Equal(t, nameLabel(pool), service.Spec.Selector)
	require.Equal(t, own, policy.Spec.PodSelector)
	p := pool.Spec.Template.Spec
	require.Equal(t, own, p.Spread[0].LabelSelector)
	c := p.Containers[0]
	require.Equal(t, c.Ports[0].Name, service.Spec.Ports[0].TargetPort)
	require.Equal(t, []string{"Ingress", "Egress"}, policy.Spec.PolicyTypes)
	require.Equal(t, podsWith("cellserver-client", "true"), policy.Spec.Ingress[0]["from"])
	require.Equal(t, podsWith("app.kubernetes.io/name", "cellserver-store"), policy.Spec.Egress[0]["to"])
	require.Len(t, policy.Spec.Egress, 2, "to the store, and to DNS")
}

// deployment is a store, and the environment of the cellservers that use it, from a file in deploy.
type deployment struct {
	script      string // the store's script
	secret      string // the path of the store's password
	environment map[string]string
}

func deployments(t *testing.T) map[string]deployment {
	compose := composition(t, "deploy/compose-store.yaml")
	store := objects(t, "deploy/kubernetes-store.yaml")["StatefulSet"].Spec.Template.Spec.Containers[0].Command[2]
	pool := objects(t, "deploy/kubernetes-store-pool.yaml")["Deployment"].Spec.Template.Spec.Containers[0]
	sidecar := objects(t, "deploy/kubernetes-store-sidecar.yaml")["Deployment"].Spec.Template.Spec.InitContainers[0]
	const inPod = "/run/secrets/store/password"
	return map[string]deployment{
		"compose": {strings.ReplaceAll(compose.Services["store"].Command[2], "$$", "$"), "/run/secrets/store-password",
			compose.Services["cellserver"].Environment},
		"pool":    {store, inPod, withoutMemory(pool.environment())},
		"sidecar": {store, inPod, withoutMemory(sidecar.environment())},
	}
}

// startStore runs the script of a store in a network, with the valkey-server that VALKEY_SERVER
// names, or with this machine's redis-server in its place.
func (d *deployment) startStore(t *testing.T, n *network) {
	t.Helper()
	dir := t.TempDir()
	server := os.Getenv("VALKEY_SERVER")
	if server == "" {
		var err error
		server, err = exec.LookPath("redis-server")
		require.NoError(t, err, "this test starts a real redis-server: install it")
	}
	programs, data, password := filepath.Join(dir, "bin"), filepath.Join(dir, "data"), filepath.Join(dir, "password")
	require.NoError(t, os.Mkdir(programs, 0o700))
	require.NoError(t, os.Mkdir(data, 0o700))
	require.NoError(t, os.Symlink(server, filepath.Join(programs, "valkey-server")))
	require.NoError(t, os.WriteFile(password, []byte(strings.Repeat("0a1b", 16)+"\n"), 0o600))
	require.Contains(t, d.script, d.secret)
	require.Contains(t, d.script, "\ndir /data\n")
	script := strings.NewReplacer(d.secret, password, "\ndir /data\n", "\ndir "+data+"\n").Replace(d.script)
	d.environment["CELLSERVER_STORE_PASSWORD_FILE"] = password
	start(t, hostProgram([]string{"/bin/sh", "-c", script}, "PATH="+programs+":/usr/bin:/bin"), n)
}

// hostProgram is an image with the files of this machine.
func hostProgram(entrypoint []string, environment ...string) *image {
	return &image{root: "/", dir: "/", user: os.Getuid(), group: os.Getgid(),
		entrypoint: entrypoint, environment: environment}
}

// onStore returns the environment of a cellserver whose store is in the same network. A busy machine
// may take longer than the default of --store-timeout.
func (d *deployment) onStore(t *testing.T, port string) []string {
	_, host, found := strings.Cut(d.environment["CELLSERVER_STORE"], "@")
	require.True(t, found)
	url := strings.Replace(d.environment["CELLSERVER_STORE"], host, "127.0.0.1:6379", 1)
	return append(asList(d.environment), "CELLSERVER_STORE="+url, "CELLSERVER_PORT="+port,
		"CELLSERVER_STORE_TIMEOUT=30000")
}

// calls sends a call to a port in a network, and returns the first lines of the reply.
func calls(t *testing.T, n *network, port, call string, lines int) (reply string) {
	t.Helper()
	n.do(t, func() error {
		c, err := net.DialTimeout("tcp4", net.JoinHostPort("127.0.0.1", port), patience)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience)) // fails only if the connection is closed
		if _, err := fmt.Fprint(c, call+"\r\n"); err != nil {
			return err
		}
		for r := bufio.NewReader(c); lines > 0; lines-- {
			line, err := r.ReadString('\n')
			if err != nil {
				return err
			}
			reply += strings.TrimSpace(line) + " "
		}
		return nil
	})
	return strings.TrimSpace(reply)
}

// The programs that the files in deploy start fit together: the store refuses clients without the
// password, cellserver has all rights that it needs and accepts the store, and two cellservers share a
// limit.
func TestCellserversShareTheirStore(t *testing.T) {
	for name, d := range deployments(t) {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			d.startStore(t, n)
			require.Equal(t, "+PONG", calls(t, n, "6379", "PING", 1))
			for _, call := range []string{"GET limits:k", "CONFIG GET *", "SET limits:k v"} {
				require.Contains(t, calls(t, n, "6379", call, 1), "-NOPERM", call)
			}
			report, err := peer.CheckStore(t, func() (out []byte, failed error) {
				check := hostProgram(nil, d.onStore(t, "0")...).process(binary(t), "check-store", "redis://limits@127.0.0.1:6379")
				n.do(t, func() error { out, failed = check.CombinedOutput(); return nil })
				return out, failed
			})
			require.NoError(t, err, report)
			require.Contains(t, report, "rights             complete\n")
			require.Contains(t, report, "maxmemory-policy   noeviction\n")
			for i, port := range []string{"7001", "7002"} {
				start(t, hostProgram([]string{binary(t)}, d.onStore(t, port)...), n)
				require.Equal(t, fmt.Sprintf("*5 :%d", i), calls(t, n, port, "CL.THROTTLE shared 0 1 100000", 2))
			}
			require.Equal(t, "*5 :1", calls(t, n, "7001", "CL.THROTTLE shared 0 1 100000", 2))
		})
	}
}

// The user of the stores in deploy has the rights that the manual shows, which are the rights that
// cellserver needs.
func TestStoresHaveTheDocumentedUser(t *testing.T) {
	const user = "ACL SETUSER limits on >password "
	_, rule, found := strings.Cut(read(t, "docs/scale.md"), user)
	require.True(t, found)
	rule, _, _ = strings.Cut(rule, "\n")
	for name, d := range deployments(t) {
		lines := strings.Split(strings.TrimSpace(d.script), "\n")
		assert.Contains(t, lines, "user limits on >$password "+rule, name)
		assert.Contains(t, lines, "maxmemory-policy noeviction", name)
		assert.Contains(t, lines, "appendonly yes", name)
		assert.False(t, slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "requirepass") }), name)
	}
}
