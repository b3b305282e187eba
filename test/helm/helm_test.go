//go:build helm

package helm

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The tests compare what the chart renders with the plain manifests, which other tests check.
const deploy = "../../deploy"

// helm runs the program whose path is in the environment variable HELM.
func helm(t *testing.T, args ...string) (out []byte, err error) {
	t.Helper()
	program := os.Getenv("HELM")
	require.NotEmpty(t, program, "HELM names no helm; make test-helm builds one")
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out, err = cmd.Output(); err != nil {
		err = errors.New(stderr.String() + string(out))
	} else {
		assert.Empty(t, stderr.String(), "a warning")
	}
	return out, err
}

// render renders the chart as a release with a name.
func render(t *testing.T, name string, set ...string) ([]byte, error) {
	t.Helper()
	args := []string{"template", name, filepath.Join(deploy, "helm"), "--kube-version", "1.30.0"}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	return helm(t, args...)
}

// The chart renders with each command of the documentation that installs it, in the folder of a reader who has the
// files that the command names.
func TestCommandsOfDocuments(t *testing.T) {
	folder := t.TempDir()
	chart, err := filepath.Abs(filepath.Join(deploy, "helm"))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "deploy"), 0o700))
	require.NoError(t, os.Symlink(chart, filepath.Join(folder, "deploy", "helm")))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "limits"), 0o700))
	for _, name := range []string{"limits/shop.yaml", "api.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("# limits\n"), 0o600))
	}
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	rendered := 0
	for _, name := range pages {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range installs.FindAllStringSubmatch(string(page), -1) {
			cmd := exec.Command("sh", "-c", `exec "$HELM" template --kube-version 1.30.0 `+m[1])
			cmd.Dir = folder
			output, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s\n%s", name, m[0], output)
			require.Regexp(t, "(?m)^kind: (StatefulSet|Deployment)$", string(output), m[0])
			rendered++
		}
	}
	require.Greater(t, rendered, 5)
}

var installs = regexp.MustCompile(`(?m)^    helm (?:install|upgrade --install) (.*)$`)

// object is a Kubernetes object.
type object = map[string]any

// objects returns the objects in a stream of YAML, by kind.
func objects(t *testing.T, text []byte) map[string]object {
	t.Helper()
	found := map[string]object{}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		if o != nil {
			found[o["kind"].(string)] = o
		}
	}
}

// plain makes an object of the chart comparable with a plain manifest: it removes the labels that name
// the release, and gives it the manifest's name. The chart must choose labels that no other release has.
func plain(value any, name string) any {
	switch v := value.(type) {
	case object:
		for key, inner := range v {
			switch key {
			case "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart":
				delete(v, key)
			case "app.kubernetes.io/name":
				if inner == "cellserver" {
					v[key] = name
				}
			default:
				v[key] = plain(inner, name)
			}
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i], name)
		}
	}
	return value
}

// shared are the values with which the chart is the pool of kubernetes-store-pool.yaml.
var shared = []string{"replicas=3", "store.url=redis://limits@cellserver-store:6379",
	"store.passwordSecret=cellserver-store", "resources.requests.memory=256Mi", "resources.limits.memory=256Mi"}

// The chart renders the objects of the plain manifests.
func TestChartIsThePlainManifests(t *testing.T) {
	for manifest, of := range map[string]struct {
		name string
		set  []string
	}{
		"kubernetes-service.yaml":    {"cellserver", nil},
		"kubernetes-store-pool.yaml": {"cellserver-pool", shared},
	} {
		text, err := render(t, of.name, of.set...)
		require.NoError(t, err)
		got := objects(t, text)
		written, err := os.ReadFile(filepath.Join(deploy, manifest))
		require.NoError(t, err)
		want := objects(t, written)
		require.Len(t, got, len(want), manifest)
		for kind, o := range want {
			require.Contains(t, got, kind, manifest)
			assert.Equal(t, o["apiVersion"], got[kind]["apiVersion"], kind)
			assert.Equal(t, o["spec"], plain(got[kind]["spec"], of.name), "%s: %s", manifest, kind)
			assert.Equal(t, of.name, got[kind]["metadata"].(object)["name"], kind)
		}
	}
}

// The chart refuses a misspelled value, and several servers without a store, each of which would
// allow the whole limit.
func TestMistakesAreRefused(t *testing.T) {
	for set, says := range map[string]string{
		"replicas=2":        "more than one server needs store.url",
		"replica=1":         "replica",
		"store.fails=never": "fails",
		"options.port=7000": "options",
		// the server would not read them
		"policies.api=x":               "does not match pattern",
		"policies.\\.hidden\\.yaml=x":  "does not match pattern",
		"policies.api\\.yaml=":         "minLength",
		"policies=x,options.policies=": "leave out options.policies",
		"envoy.enabled=true":           "set envoy.config or envoy.xds.address",
		"envoy.enabled=true,envoy.config=x,envoy.xds.address=a:1": "and not both",
		"envoy.xds.address=a":                    "does not match pattern",
		"tls.authClients=maybe":                  "authClients",
		"tls.secret=a,options.tls-port=\"6380\"": "leave out options.tls-port",
	} {
		_, err := render(t, "x", set)
		assert.ErrorContains(t, err, says, set)
	}
}

// Options become variables of the environment, and passwords come from secrets.
func TestOptions(t *testing.T) {
	text, err := render(t, "limits", "options.maxclients=\"5000\"", "options.oom-decision=limit",
		"options.maxmemory=100mb", "passwordSecret=clients", "persistence.size=", "networkPolicy.enabled=false")
	require.NoError(t, err)
	found := objects(t, text)
	assert.NotContains(t, found, "NetworkPolicy")
	assert.NotContains(t, found, "PodDisruptionBudget")
	set := found["StatefulSet"]
	assert.Equal(t, "limits-cellserver", set["metadata"].(object)["name"])
	assert.NotContains(t, set["spec"], "volumeClaimTemplates")
	for _, part := range []string{`name: CELLSERVER_OOM_DECISION, value: "limit"`,
		`name: CELLSERVER_MAXMEMORY, value: "100mb"`, "secretName: \"clients\"",
		`name: CELLSERVER_REQUIREPASS_FILE, value: "/run/secrets/clients/password"`} {
		assert.Contains(t, string(text), part)
	}
	assert.NotContains(t, string(text), "CELLSERVER_DIR")
}

// With metrics, Prometheus and the kubelet find and reach the port. Without metrics there is no such port: see
// TestChartIsThePlainManifests.
func TestMetrics(t *testing.T) {
	for _, set := range [][]string{nil, shared} {
		text, err := render(t, "cellserver", append([]string{"metrics.enabled=true", "metrics.serviceMonitor=true",
			"metrics.serviceMonitorLabels.release=prometheus"}, set...)...)
		require.NoError(t, err)
		for _, part := range []string{
			`name: CELLSERVER_METRICS_PORT, value: "9121"`, "- {name: metrics, containerPort: 9121}",
			"- {name: metrics, port: 9121, targetPort: metrics}",
		} {
			assert.Contains(t, string(text), part)
		}
		found := objects(t, text)
		server := container(found)
		assert.Equal(t, object{"path": "/readyz", "port": "metrics"}, server["readinessProbe"].(object)["httpGet"])
		assert.Equal(t, object{"path": "/healthz", "port": "metrics"}, server["livenessProbe"].(object)["httpGet"])
		started := []any{"/cellserver", "cli", "PING"}
		if set != nil {
			started = []any{"/cellserver", "ready"} // so an update with a wrong store password stops at the first pod
		}
		assert.Equal(t, object{"command": started}, server["startupProbe"].(object)["exec"])
		rules := found["NetworkPolicy"]["spec"].(object)["ingress"].([]any)
		require.Len(t, rules, 2)
		assert.Equal(t, []any{object{"protocol": "TCP", "port": "metrics"}}, rules[1].(object)["ports"])
		monitor := found["ServiceMonitor"]
		assert.Equal(t, "prometheus", monitor["metadata"].(object)["labels"].(object)["release"])
		assert.Equal(t, found["Service"]["spec"].(object)["selector"],
			monitor["spec"].(object)["selector"].(object)["matchLabels"])
	}
}

// HTTP and TLS each have a port in the container and in the Service, to which the NetworkPolicy lets clients
// connect; TLS has its files. By default there is none of this: see TestChartIsThePlainManifests.
func TestHTTPAndTLS(t *testing.T) {
	text, err := render(t, "cellserver", "http.enabled=true", "tls.secret=certificate", "tls.authClients=yes",
		"persistence.size=")
	require.NoError(t, err)
	found := objects(t, text)
	server := container(found)
	for name, value := range map[string]string{
		"HTTP_PORT": "8090", "TLS_PORT": "6380", "TLS_AUTH_CLIENTS": "yes", "TLS_CERT_FILE": "/run/secrets/tls/tls.crt",
		"TLS_KEY_FILE": "/run/secrets/tls/tls.key", "TLS_CA_CERT_FILE": "/run/secrets/tls/ca.crt",
	} {
		assert.Contains(t, server["env"], object{"name": "CELLSERVER_" + name, "value": value})
	}
	ports := found["Service"]["spec"].(object)["ports"]
	allowed := found["NetworkPolicy"]["spec"].(object)["ingress"].([]any)[0].(object)["ports"]
	for name, port := range map[string]int{"http": 8090, "redis-tls": 6380} {
		assert.Contains(t, server["ports"], object{"name": name, "containerPort": port})
		assert.Contains(t, ports, object{"name": name, "port": port, "targetPort": name})
		assert.Contains(t, allowed, object{"protocol": "TCP", "port": name})
	}
	assert.Contains(t, server["volumeMounts"], object{"name": "tls", "mountPath": "/run/secrets/tls", "readOnly": true})
	assert.Contains(t, pods(found)["volumes"], object{"name": "tls",
		"secret": object{"secretName": "certificate", "defaultMode": 0o440}})
	text, err = render(t, "cellserver", "tls.secret=certificate")
	require.NoError(t, err)
	assert.NotContains(t, string(text), "CELLSERVER_TLS_CA_CERT_FILE")
}

// Settings for which the chart has no value are added to the pods unchanged.
func TestExtras(t *testing.T) {
	for _, base := range [][]string{nil, {"persistence.size="}, shared} {
		text, err := render(t, "cellserver", append([]string{"imagePullSecrets[0].name=registry",
			"extraEnv[0].name=TZ", "extraEnv[0].value=UTC", "extraVolumes[0].name=files",
			"extraVolumes[0].configMap.name=files", "extraVolumeMounts[0].name=files",
			"extraVolumeMounts[0].mountPath=/files"}, base...)...)
		require.NoError(t, err)
		found := objects(t, text)
		assert.Equal(t, []any{object{"name": "registry"}}, pods(found)["imagePullSecrets"])
		assert.Contains(t, pods(found)["volumes"], object{"name": "files", "configMap": object{"name": "files"}})
		assert.Contains(t, container(found)["env"], object{"name": "TZ", "value": "UTC"})
		assert.Contains(t, container(found)["volumeMounts"], object{"name": "files", "mountPath": "/files"})
	}
}

// container returns the container of the pods of a release.
func container(found map[string]object) object {
	return pods(found)["containers"].([]any)[0].(object)
}

// pods returns the specification of a release's pods.
func pods(found map[string]object) object {
	workload := found["StatefulSet"]
	if workload == nil {
		workload = found["Deployment"]
	}
	return workload["spec"].(object)["template"].(object)["spec"].(object)
}

// mounted writes the policies of a release to a folder. Before, it checks that the server reads them, and
// that they are mounted as a folder: the kubelet never updates files that are mounted by subPath.
func mounted(t *testing.T, found map[string]object) string {
	t.Helper()
	const at = "/etc/cellserver/policies"
	assert.Contains(t, container(found)["env"], object{"name": "CELLSERVER_POLICIES", "value": at})
	assert.Contains(t, container(found)["volumeMounts"], object{"name": "policies", "mountPath": at, "readOnly": true})
	source := object{"name": found["ConfigMap"]["metadata"].(object)["name"]}
	assert.Contains(t, pods(found)["volumes"], object{"name": "policies", "configMap": source})
	folder := t.TempDir()
	for name, text := range found["ConfigMap"]["data"].(object) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text.(string)), 0o600))
	}
	return folder
}

// Policies, given as one text or as several texts by name, are where the server reads them, byte for byte.
// Changing them does not change the pods, so no pod restarts.
func TestPolicies(t *testing.T) {
	const example = "../../examples/policies/policies/api.yaml"
	written, err := os.ReadFile(example)
	require.NoError(t, err)
	for _, base := range [][]string{nil, shared, {"persistence.size="}, {"passwordSecret=clients"}} {
		var before object
		for _, set := range [][]string{
			{"--set-file", "policies=" + example},
			{"--set-file", "policies.policies\\.yaml=" + example},
			{"--set-file", "policies.policies\\.yaml=" + example, "--set-string", "policies.b\\.yml=policies: {}"},
		} {
			for _, s := range base {
				set = append(set, "--set", s)
			}
			text, err := helm(t, append([]string{"template", "cellserver", filepath.Join(deploy, "helm"),
				"--kube-version", "1.30.0"}, set...)...)
			require.NoError(t, err)
			found := objects(t, text)
			folder := mounted(t, found)
			got, err := os.ReadFile(filepath.Join(folder, "policies.yaml"))
			require.NoError(t, err)
			assert.Equal(t, string(written), string(got))
			if base == nil {
				out, err := exec.Command("go", "run", "../../cmd/cellserver", "policies", "check", folder).CombinedOutput()
				require.NoError(t, err, string(out))
			}
			if before == nil {
				before = pods(found)
			}
			assert.Equal(t, before, pods(found))
		}
	}
	text, err := render(t, "cellserver")
	require.NoError(t, err)
	assert.NotContains(t, objects(t, text), "ConfigMap")
	assert.NotContains(t, string(text), "CELLSERVER_POLICIES")
}

// Envoys find the port and may reach it. The limits are where the server reads them, or come from a control plane.
func TestEnvoy(t *testing.T) {
	const written = "domain: shop\ndescriptors:\n  - key: user # of any name\n" +
		"    rate_limit: {unit: minute, requests_per_unit: 100}\n"
	example := filepath.Join(t.TempDir(), "shop.yaml")
	require.NoError(t, os.WriteFile(example, []byte(written), 0o600))
	text, err := helm(t, "template", "cellserver", filepath.Join(deploy, "helm"), "--kube-version", "1.30.0",
		"--set", "envoy.enabled=true", "--set-file", "envoy.config="+example)
	require.NoError(t, err)
	found := objects(t, text)
	requirePort(t, found)
	const at = "/etc/cellserver/envoy"
	env := container(found)["env"]
	assert.Contains(t, env, object{"name": "CELLSERVER_GRPC_PORT", "value": "8081"})
	assert.Contains(t, env, object{"name": "CELLSERVER_ENVOY_CONFIG", "value": at})
	assert.Contains(t, container(found)["volumeMounts"], object{"name": "envoy", "mountPath": at, "readOnly": true})
	source := object{"name": found["ConfigMap"]["metadata"].(object)["name"]}
	assert.Contains(t, pods(found)["volumes"], object{"name": "envoy", "configMap": source})
	assert.Equal(t, object{"config.yaml": written}, found["ConfigMap"]["data"])
	assert.NotContains(t, found["NetworkPolicy"]["spec"], "egress")

	for _, base := range [][]string{nil, shared} {
		text, err = render(t, "cellserver", append(base, "envoy.enabled=true", "envoy.xds.address=plane.system:18001",
			"envoy.xds.node=n", "envoy.xds.tlsSecret=certificates")...)
		require.NoError(t, err)
		found = objects(t, text)
		requirePort(t, found)
		assert.NotContains(t, found, "ConfigMap")
		env = container(found)["env"]
		for name, value := range map[string]string{"": "plane.system:18001", "_NODE": "n", "_TLS": "yes",
			"_TLS_CA_CERT_FILE": "/run/secrets/xds/ca.crt", "_TLS_CERT_FILE": "/run/secrets/xds/tls.crt",
			"_TLS_KEY_FILE": "/run/secrets/xds/tls.key"} {
			assert.Contains(t, env, object{"name": "CELLSERVER_ENVOY_XDS" + name, "value": value})
		}
		assert.Contains(t, pods(found)["volumes"], object{"name": "xds",
			"secret": object{"secretName": "certificates", "defaultMode": 0o440}})
		rules := found["NetworkPolicy"]["spec"].(object)["egress"].([]any)
		assert.Equal(t, []any{object{"protocol": "TCP", "port": 18001}}, rules[0].(object)["ports"])
		assert.Len(t, rules, 2+len(base)/len(shared)) // to the control plane, the store, and DNS
	}
}

// requirePort checks that a release has the port for Envoys.
func requirePort(t *testing.T, found map[string]object) {
	t.Helper()
	assert.Contains(t, container(found)["ports"], object{"name": "grpc", "containerPort": 8081})
	assert.Contains(t, found["Service"]["spec"].(object)["ports"],
		object{"name": "grpc", "port": 8081, "targetPort": "grpc", "appProtocol": "kubernetes.io/h2c"})
	rules := found["NetworkPolicy"]["spec"].(object)["ingress"].([]any)
	assert.Equal(t, []any{object{"protocol": "TCP", "port": "grpc"}}, rules[len(rules)-1].(object)["ports"])
}

func TestLint(t *testing.T) {
	out, err := helm(t, "lint", "--strict", filepath.Join(deploy, "helm"))
	require.NoError(t, err)
	assert.Contains(t, string(out), "0 chart(s) failed")
}
