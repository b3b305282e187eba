package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// envoyFilter has the fields of Istio's resource that docs/envoy.md uses.
type envoyFilter struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name, Namespace string }
	Spec       struct {
		WorkloadSelector struct{ Labels map[string]string } `yaml:"workloadSelector"`
		ConfigPatches    []struct {
			ApplyTo string `yaml:"applyTo"`
			Match   struct {
				Context  string
				Listener struct {
					FilterChain struct {
						Filter struct {
							Name      string
							SubFilter struct{ Name string } `yaml:"subFilter"`
						}
					} `yaml:"filterChain"`
				}
				RouteConfiguration struct {
					Vhost struct {
						Name  string
						Route struct{ Action string }
					}
				} `yaml:"routeConfiguration"`
			}
			Patch struct {
				Operation string
				Value     map[string]any
			}
		} `yaml:"configPatches"`
	}
}

// decodeStrictly reads a block of docs/envoy.md into a form, and fails if the block has other
// fields.
func decodeStrictly(t *testing.T, begins string, form any) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(block(t, begins))))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(form))
}

// asJSON returns a value in JSON, which is YAML on one line.
func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// An Envoy that has the patches of the EnvoyFilter, inserted where Istio inserts them, asks
// cellserver.
func TestIstio(t *testing.T) {
	var f envoyFilter
	decodeStrictly(t, "istio.yaml", &f)
	require.Equal(t, []string{"networking.istio.io/v1alpha3", "EnvoyFilter"}, []string{f.APIVersion, f.Kind})
	require.Len(t, f.Spec.ConfigPatches, 2)
	filter, host := &f.Spec.ConfigPatches[0], &f.Spec.ConfigPatches[1]
	require.Equal(t, "HTTP_FILTER INSERT_BEFORE", filter.ApplyTo+" "+filter.Patch.Operation)
	require.Equal(t, "envoy.filters.http.router", filter.Match.Listener.FilterChain.Filter.SubFilter.Name)
	require.Equal(t, "VIRTUAL_HOST MERGE", host.ApplyTo+" "+host.Patch.Operation)
	own := block(t, "envoy.yaml")
	begin := strings.Index(own, "                  - name: envoy.filters.http.ratelimit\n")
	end := strings.Index(own, "                  - name: envoy.filters.http.router\n")
	s := start(t, write(t, "shop.yaml", limits(2, "")))
	const cluster = "outbound|8081||cellserver.default.svc.cluster.local"
	address := startEnvoy(t, envoyProgram(t), s.port,
		own[begin:end], "                  - "+strings.ReplaceAll(asJSON(t, filter.Patch.Value), "0.02s", "60s")+"\n",
		"                            rate_limits:\n"+
			"                              - actions: [{generic_key: {descriptor_value: checkout}}]\n", "",
		`domains: ["*"]`, `domains: ["*"]`+"\n                      rate_limits: "+
			asJSON(t, host.Patch.Value["rate_limits"]), "name: ratelimit\n", fmt.Sprintf("name: %q\n", cluster),
		"cluster_name: ratelimit\n", fmt.Sprintf("cluster_name: %q\n", cluster))
	for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		status, _ := get(t, address)
		require.Equal(t, want, status)
	}
}

// The configuration of Envoy Gateway has the form of its API, as far as docs/envoy.md uses it.
// TestImageOfEnvoyGateway runs its container with the command that Envoy Gateway renders, which the image has.
func TestEnvoyGatewayConfiguration(t *testing.T) {
	var gateway struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Gateway    struct {
			ControllerName string `yaml:"controllerName"`
		}
		Provider struct {
			Type       string
			Kubernetes struct {
				RateLimitDeployment struct{ Container struct{ Image string } } `yaml:"rateLimitDeployment"`
			}
		}
		RateLimit struct {
			Backend struct {
				Type  string
				Redis struct{ URL string }
			}
		} `yaml:"rateLimit"`
	}
	decodeStrictly(t, "envoy-gateway.yaml", &gateway)
	require.Equal(t, "gateway.envoyproxy.io/v1alpha1 EnvoyGateway Kubernetes Redis", strings.Join([]string{
		gateway.APIVersion, gateway.Kind, gateway.Provider.Type, gateway.RateLimit.Backend.Type}, " "))
	deployment, err := os.ReadFile("testdata/envoy-gateway-v1.9.0.yaml")
	require.NoError(t, err)
	require.Contains(t, string(deployment), "- command:\n        - /bin/ratelimit\n")
	dockerfile, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	require.Contains(t, string(dockerfile), "/bin/ratelimit")
}

// A BackendTrafficPolicy of docs/envoy.md has the form of Envoy Gateway's API.
func TestBackendTrafficPolicy(t *testing.T) {
	var policy struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			TargetRefs []struct{ Group, Kind, Name string } `yaml:"targetRefs"`
			RateLimit  struct {
				Type   string
				Global struct {
					Rules []struct {
						ClientSelectors []struct{ Headers []struct{ Name, Type string } } `yaml:"clientSelectors"`
						Limit           struct {
							Requests int
							Unit     string
						}
					}
				}
			} `yaml:"rateLimit"`
		}
	}
	decodeStrictly(t, "backend-traffic-policy.yaml", &policy)
	require.Equal(t, "gateway.envoyproxy.io/v1alpha1 BackendTrafficPolicy Global", strings.Join([]string{
		policy.APIVersion, policy.Kind, policy.Spec.RateLimit.Type}, " "))
}
