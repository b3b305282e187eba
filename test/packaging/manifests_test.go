//go:build linux

package packaging

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// ping is the health check whose failure restarts a container. ready is the check of a server with a
// store: clients are sent to the server only after it has reached the store.
var (
	ping  = []string{"/cellserver", "cli", "PING"}
	ready = []string{"/cellserver", "ready"}
)

func healthCheck(environment map[string]string) []string {
	if environment["CELLSERVER_STORE"] != "" {
		return ready
	}
	return ping
}

// images that the manifests may name: the one that make docker builds, one that stands for an
// application, and the server of --store.
var knownImages = []string{
	"cellserver:latest", "redis:7.0", "valkey/valkey:8.1",
	"python:3.13-alpine", "nginxinc/nginx-unprivileged:1.29", "haproxy:3.2", "caddy:2.10", "traefik:v3.6", // in examples
}

// decode reads one document strictly, because a key that the type does not have is either
// misspelled or not tested here.
func decode(t *testing.T, d *yaml.Decoder, into any) (more bool) {
	t.Helper()
	err := d.Decode(into)
	if err == io.EOF {
		return false
	}
	require.NoError(t, err)
	return true
}

func strict(text string) *yaml.Decoder {
	d := yaml.NewDecoder(bytes.NewReader([]byte(text)))
	d.KnownFields(true)
	return d
}

type composeFile struct {
	Name     string
	Services map[string]composed
	Volumes  map[string]any
	Networks map[string]struct{ Internal bool }
	Secrets  map[string]struct{ File string }
}

type composed struct {
	Image, User, Restart string
	Command, Volumes     []string
	Networks, Secrets    []string
	Profiles             []string
	Ports, Tmpfs         []string
	Deploy               struct{ Replicas int }
	Environment          map[string]string
	NetworkMode          string   `yaml:"network_mode"`
	MemLimit             string   `yaml:"mem_limit"`
	StopGracePeriod      string   `yaml:"stop_grace_period"`
	ReadOnly             bool     `yaml:"read_only"`
	CapDrop              []string `yaml:"cap_drop"`
	CapAdd               []string `yaml:"cap_add"`
	SecurityOpt          []string `yaml:"security_opt"`
	Healthcheck          struct {
		Test                       []string
		Interval, Timeout, Retries string
		StartPeriod                string `yaml:"start_period"`
	}
	DependsOn map[string]struct {
		Condition string
		Restart   bool
	} `yaml:"depends_on"`
}

// composition reads a file for Compose, and checks what must be true of every service, and of the
// service cellserver in every file.
func composition(t *testing.T, name string) composeFile {
	t.Helper()
	var file composeFile
	require.True(t, decode(t, strict(read(t, name)), &file))
	for name, service := range file.Services {
		require.Contains(t, knownImages, service.Image, name)
		require.True(t, service.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, service.CapDrop, name)
		require.Equal(t, []string{"no-new-privileges:true"}, service.SecurityOpt, name)
		require.Equal(t, "unless-stopped", service.Restart, name)
	}
	server := file.Services["cellserver"]
	require.Equal(t, append([]string{"CMD"}, healthCheck(server.Environment)...), server.Healthcheck.Test)
	require.Empty(t, refused(t, server.Command, asList(server.Environment)))
	grace := strings.TrimSuffix(server.StopGracePeriod, "s")
	require.Greater(t, number(t, grace), number(t, server.Environment["CELLSERVER_SHUTDOWN_TIMEOUT"]))
	require.True(t, strings.HasSuffix(server.MemLimit, "m"), server.MemLimit)
	limit := number(t, strings.TrimSuffix(server.MemLimit, "m"))
	collects := number(t, strings.TrimSuffix(server.Environment["GOMEMLIMIT"], "MiB"))
	require.InDelta(t, 0.9, collects/limit, 0.05)
	return file
}

func TestCompose(t *testing.T) {
	file := composition(t, "deploy/compose.yaml")
	server, app := file.Services["cellserver"], file.Services["app"]
	require.Equal(t, "127.0.0.1", server.Environment["CELLSERVER_BIND"], "only the application is to reach it")
	require.Equal(t, "yes", server.Environment["CELLSERVER_PROTECTED_MODE"])
	require.Equal(t, []string{"state:" + server.Environment["CELLSERVER_DIR"]}, server.Volumes)
	require.Contains(t, file.Volumes, "state")
	require.Equal(t, "service:cellserver", app.NetworkMode)
	require.Equal(t, "service_healthy", app.DependsOn["cellserver"].Condition)
	require.True(t, app.DependsOn["cellserver"].Restart, "or app stays in a removed network")
}

func asList(variables map[string]string) (list []string) {
	for name, value := range variables {
		list = append(list, name+"="+value)
	}
	return list
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return n
}

// object has the fields of Deployment, StatefulSet, Service, PodDisruptionBudget and NetworkPolicy that
// deploy's Kubernetes files use.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Replicas *int
		Strategy struct {
			RollingUpdate struct {
				MaxUnavailable *int `yaml:"maxUnavailable"`
				MaxSurge       int  `yaml:"maxSurge"`
			} `yaml:"rollingUpdate"`
		}
		MaxUnavailable       *int   `yaml:"maxUnavailable"`
		ServiceName          string `yaml:"serviceName"`
		VolumeClaimTemplates []struct {
			Metadata struct{ Name string }
			Spec     struct {
				AccessModes []string `yaml:"accessModes"`
				Resources   struct{ Requests map[string]string }
			}
		} `yaml:"volumeClaimTemplates"`
		Selector map[string]any
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
		Ports []struct {
			Name       string
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		PodSelector map[string]any `yaml:"podSelector"`
		PolicyTypes []string       `yaml:"policyTypes"`
		Ingress     []map[string]any
		Egress      []map[string]any
	}
}

type pod struct {
	EnableServiceLinks            *bool `yaml:"enableServiceLinks"`
	AutomountServiceAccountToken  *bool `yaml:"automountServiceAccountToken"`
	TerminationGracePeriodSeconds int   `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot   bool              `yaml:"runAsNonRoot"`
		RunAsUser      int               `yaml:"runAsUser"`
		RunAsGroup     int               `yaml:"runAsGroup"`
		FSGroup        int               `yaml:"fsGroup"`
		FSGroupChange  string            `yaml:"fsGroupChangePolicy"`
		SeccompProfile map[string]string `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Spread []struct {
		MaxSkew           int    `yaml:"maxSkew"`
		TopologyKey       string `yaml:"topologyKey"`
		WhenUnsatisfiable string `yaml:"whenUnsatisfiable"`
		LabelSelector     any    `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	InitContainers []kubernetesContainer `yaml:"initContainers"`
	Containers     []kubernetesContainer
	Volumes        []struct {
		Name   string
		Secret struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
		}
	}
}

type kubernetesContainer struct {
	Name, Image     string
	ImagePullPolicy string `yaml:"imagePullPolicy"`
	RestartPolicy   string `yaml:"restartPolicy"`
	Command, Args   []string
	Env             []struct {
		Name, Value string
		ValueFrom   struct {
			ResourceFieldRef struct {
				ContainerName string `yaml:"containerName"`
				Resource      string
			} `yaml:"resourceFieldRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
	Resources       struct{ Requests, Limits map[string]string }
	StartupProbe    probe `yaml:"startupProbe"`
	LivenessProbe   probe `yaml:"livenessProbe"`
	ReadinessProbe  probe `yaml:"readinessProbe"`
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
}

type probe struct {
	Exec             struct{ Command []string }
	PeriodSeconds    int `yaml:"periodSeconds"`
	TimeoutSeconds   int `yaml:"timeoutSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}

func (c kubernetesContainer) environment() map[string]string {
	variables := map[string]string{}
	for _, v := range c.Env {
		variables[v.Name] = v.Value
	}
	return variables
}

// objects reads a file of deploy, and returns its objects by kind.
func objects(t *testing.T, name string) map[string]object {
	t.Helper()
	found := map[string]object{}
	for d := strict(read(t, name)); ; {
		var o object
		if !decode(t, d, &o) {
			return found
		}
		require.NotContains(t, found, o.Kind)
		found[o.Kind] = o
	}
}

func TestKubernetesPods(t *testing.T) {
	for name, kind := range map[string]string{
		"deploy/kubernetes-sidecar.yaml": "Deployment", "deploy/kubernetes-service.yaml": "StatefulSet",
		"deploy/kubernetes-store-sidecar.yaml": "Deployment", "deploy/kubernetes-store-pool.yaml": "Deployment",
		"deploy/kubernetes-store.yaml": "StatefulSet",
	} {
		o := objects(t, name)[kind]
		p := o.Spec.Template.Spec
		require.Contains(t, labels(o.Spec.Template.Metadata.Labels), "app.kubernetes.io/name", name)
		require.Equal(t, map[string]any{"matchLabels": nameLabel(o)}, o.Spec.Selector, name)
		require.True(t, p.SecurityContext.RunAsNonRoot, name)
		require.NotZero(t, p.SecurityContext.RunAsUser, name)
		require.Equal(t, "RuntimeDefault", p.SecurityContext.SeccompProfile["type"], name)
		require.False(t, *p.EnableServiceLinks, name)
		require.False(t, *p.AutomountServiceAccountToken, name)
		servers := 0
		for _, c := range append(p.InitContainers, p.Containers...) {
			require.Contains(t, knownImages, c.Image, name)
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, "%s: %s", name, c.Name)
			require.True(t, c.SecurityContext.ReadOnlyRootFilesystem, "%s: %s", name, c.Name)
			require.Equal(t, []string{"ALL"}, c.SecurityContext.Capabilities.Drop, "%s: %s", name, c.Name)
			require.NotEmpty(t, c.Resources.Limits["memory"], "%s: %s", name, c.Name)
			if strings.HasPrefix(c.Image, "cellserver:") {
				servers++
				checkServer(t, c, p)
			}
		}
		if name != "deploy/kubernetes-store.yaml" {
			require.Equal(t, 1, servers, name)
		}
	}
}

// nameLabel returns the label of an object's pods that selects them.
func nameLabel(o object) map[string]any {
	const name = "app.kubernetes.io/name"
	return map[string]any{name: o.Spec.Template.Metadata.Labels[name]}
}

func labels(of map[string]string) map[string]any {
	list := map[string]any{}
	for name, value := range of {
		list[name] = value
	}
	return list
}

// checkServer checks that a container with cellserver fits the server and its image.
func checkServer(t *testing.T, c kubernetesContainer, p pod) {
	t.Helper()
	variables := c.environment()
	require.Empty(t, c.Command, "the image's ENTRYPOINT starts it")
	require.Empty(t, refused(t, c.Args, asList(withoutMemory(variables))))
	require.Equal(t, "5", variables["CELLSERVER_SHUTDOWN_DELAY"])
	stop := number(t, variables["CELLSERVER_SHUTDOWN_DELAY"]) + number(t, variables["CELLSERVER_SHUTDOWN_TIMEOUT"])
	require.GreaterOrEqual(t, float64(p.TerminationGracePeriodSeconds), 2*stop, "or it is killed while stopping")
	require.NotContains(t, variables, "CELLSERVER_METRICS_PORT", "with it, the probes should ask /readyz and /healthz")
	for _, probe := range []probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		require.Positive(t, probe.TimeoutSeconds)
	}
	require.Equal(t, ping, c.StartupProbe.Exec.Command)
	require.Equal(t, ping, c.LivenessProbe.Exec.Command)
	require.Equal(t, healthCheck(variables), c.ReadinessProbe.Exec.Command)
	for _, v := range c.Env {
		if v.Name == "GOMEMLIMIT" {
			require.Equal(t, "limits.memory", v.ValueFrom.ResourceFieldRef.Resource)
			require.Equal(t, c.Name, v.ValueFrom.ResourceFieldRef.ContainerName)
		}
	}
	require.Contains(t, variables, "GOMEMLIMIT")
	require.Equal(t, c.Resources.Limits["memory"], c.Resources.Requests["memory"], "what c may use is kept for it")
	require.Equal(t, imageFor(t, "amd64").user, p.SecurityContext.RunAsUser, "the image's user")
}

// withoutMemory removes GOMEMLIMIT, which Kubernetes fills in.
func withoutMemory(variables map[string]string) map[string]string {
	rest := map[string]string{}
	for name, value := range variables {
		if name != "GOMEMLIMIT" {
			rest[name] = value
		}
	}
	return rest
}

// A sidecar starts before the application, and only the application can reach it.
func TestKubernetesSidecar(t *testing.T) {
	p := objects(t, "deploy/kubernetes-sidecar.yaml")["Deployment"].Spec.Template.Spec
	require.Equal(t, "cellserver", p.InitContainers[0].Name)
	require.Equal(t, "Always", p.InitContainers[0].RestartPolicy)
	variables := p.InitContainers[0].environment()
	require.Equal(t, "127.0.0.1", variables["CELLSERVER_BIND"])
	require.Equal(t, "yes", variables["CELLSERVER_PROTECTED_MODE"])
}

// There is one replica, the old pod ends before the new pod starts, and only some of the pods in the cluster can
// reach the server.
func TestKubernetesService(t *testing.T) {
	found := objects(t, "deploy/kubernetes-service.yaml")
	server, service, policy := found["StatefulSet"], found["Service"], found["NetworkPolicy"]
	require.Equal(t, 1, *server.Spec.Replicas)
	require.Equal(t, service.Metadata.Name, server.Spec.ServiceName)
	own := labels(server.Spec.Template.Metadata.Labels)
	require.Equal(t, own, service.Spec.Selector)
	require.Equal(t, map[string]any{"matchLabels": own}, policy.Spec.PodSelector)
	port := server.Spec.Template.Spec.Containers[0].Ports[0]
	require.Equal(t, 6379, port.ContainerPort)
	require.Equal(t, port.Name, service.Spec.Ports[0].TargetPort)
	require.Equal(t, []string{"Ingress", "Egress"}, policy.Spec.PolicyTypes)
	require.Len(t, policy.Spec.Ingress, 1)
	require.NotEmpty(t, policy.Spec.Ingress[0]["from"], "an empty list would be everybody")
}

// The server for a namespace has its keys on a volume that its user can write to. The startup probe
// allows for --dir-wait, and then for loading the keys. A sidecar has no volume.
func TestKubernetesVolume(t *testing.T) {
	spec := objects(t, "deploy/kubernetes-service.yaml")["StatefulSet"].Spec
	p := spec.Template.Spec
	server, volume := p.Containers[0], spec.VolumeClaimTemplates[0]
	require.Equal(t, []string{"ReadWriteOnce"}, volume.Spec.AccessModes, "two servers cannot share a folder")
	require.Equal(t, volume.Metadata.Name, server.VolumeMounts[0].Name)
	require.Equal(t, server.environment()["CELLSERVER_DIR"], server.VolumeMounts[0].MountPath)
	require.Equal(t, imageFor(t, "amd64").group, p.SecurityContext.FSGroup)
	const wait = 60 // --dir-wait
	require.Greater(t, server.StartupProbe.PeriodSeconds*server.StartupProbe.FailureThreshold, 2*wait)

	sidecar := objects(t, "deploy/kubernetes-sidecar.yaml")["Deployment"].Spec.Template.Spec.InitContainers[0]
	require.NotContains(t, sidecar.environment(), "CELLSERVER_DIR")
	require.Empty(t, sidecar.VolumeMounts)
}

var (
	uses   = regexp.MustCompile(`uses: *(.*)`)
	pinned = regexp.MustCompile(`^(actions/(checkout|setup-go|attest-build-provenance)|sigstore/cosign-installer)@[0-9a-f]{40} # v[0-9.]+$`)
	makes  = regexp.MustCompile(`\b(?:make|ci/run) ([a-z0-9-]+)`)
	target = regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `)
)

// CI runs make targets that exist, so that a developer can do the same. It runs them through
// .ci/run if a test needs more than Go. Actions are pinned.
func TestWorkflows(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	files, err := filepath.Glob(top + "/.github/workflows/*.yml")
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var workflow struct {
			Name        string
			On          any
			Permissions map[string]string
			Jobs        map[string]struct {
				Uses, Needs      string
				Permissions, Env map[string]string
				Strategy         struct {
					FailFast bool `yaml:"fail-fast"`
					Matrix   struct{ Make []string }
				}
				RunsOn         string `yaml:"runs-on"`
				TimeoutMinutes int    `yaml:"timeout-minutes"`
				Steps          []struct {
					Name, If, Uses, Run string
					With, Env           map[string]string
				}
			}
		}
		require.True(t, decode(t, strict(string(text)), &workflow), file)
		for _, m := range uses.FindAllStringSubmatch(string(text), -1) {
			require.True(t, m[1] == "./.github/workflows/ci.yml" || pinned.MatchString(m[1]), "%s: uses %s", file, m[1])
		}
		ran := 0
		for _, job := range workflow.Jobs {
			for _, target := range job.Strategy.Matrix.Make {
				job.Steps = append(job.Steps, job.Steps[len(job.Steps)-1])
				job.Steps[len(job.Steps)-1].Run = ".ci/run " + target
			}
			for _, step := range job.Steps {
				for _, m := range makes.FindAllStringSubmatch(step.Run, -1) {
					ran++
					require.True(t, targets[m[1]], "%s: make %s is no target", file, m[1])
				}
			}
		}
		require.NotZero(t, ran, file)
	}
}

// Each manifest says beside its memory limit how much of it the server uses for maxmemory.
func TestManifestsSayMaxMemory(t *testing.T) {
	const note = "# The server's maxmemory is two thirds of the limit, unless %s sets another.\n"
	for _, path := range []string{"compose.yaml", "compose-store.yaml",
		"kubernetes-service.yaml", "kubernetes-sidecar.yaml",
		"kubernetes-store-pool.yaml", "kubernetes-store-sidecar.yaml", "helm/values.yaml"} {
		setting := "CELLSERVER_MAXMEMORY"
		if strings.HasPrefix(path, "helm/") {
			setting = "options.maxmemory"
		}
		before, found := "", false
		for line := range strings.Lines(read(t, "deploy/"+path)) {
			if strings.Contains(before, fmt.Sprintf(note, setting)) {
				require.Regexp(t, `^\s+(limits: \{memory: |mem_limit: )`, line, path)
				found = true
			}
			before = line
		}
		require.True(t, found, path)
	}
}
