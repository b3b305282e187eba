// Package helm checks the chart in deploy/helm; see run.sh, which builds helm and runs the tests.
package helm
