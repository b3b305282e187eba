# make            lists the targets
# make run        starts cellserver on 127.0.0.1:6379; ARGS="--port 7000" passes options on

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)
GO      := go
# Without the paths of this clone in them, compiled packages and the results of staticcheck are of use to the next one.
export GOFLAGS := $(GOFLAGS) -trimpath

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## build, and start on 127.0.0.1:6379 (ARGS="--port 7000" passes options)
	./bin/cellserver $(ARGS)

.PHONY: demo
demo: build ## build, and start a server with sample policies, clients and a page, on free ports
	@./bin/cellserver demo

.PHONY: build
build: ## build bin/cellserver
	@[ -x bin/cellserver ] || echo 'building cellserver: the first time takes about a minute' >&2
	@CGO_ENABLED=0 $(GO) build -tags grpcnotrace -ldflags '$(LDFLAGS)' -o bin/cellserver ./cmd/cellserver

.PHONY: build-fips
build-fips: ## build bin/cellserver-fips, whose cryptography is Go's FIPS 140-3 module
	@GOFIPS140=v1.0.0 CGO_ENABLED=0 $(GO) build -tags grpcnotrace -ldflags '$(LDFLAGS)' -o bin/cellserver-fips ./cmd/cellserver

.PHONY: test-fips
test-fips: build-fips ## run bin/cellserver-fips where no other cryptography is allowed (nightly)
	test/fips/run.sh bin/cellserver-fips

# The binaries that tests start are built once, before the tests: see test/peer. The first is built as a release is. Everything
# else is compiled without the profile, which would mean compiling each package once more, and again for the race detector.
SERVERS := $(CURDIR)/bin/test
TEST_VERSION := -buildvcs=false -ldflags='-X main.version=1.2.3'

.PHONY: test-servers
test-servers: # the binaries that the tests of several packages start
	@CGO_ENABLED=0 $(GO) build -tags grpcnotrace $(TEST_VERSION) -o $(SERVERS)/cellserver ./cmd/cellserver
	@$(GO) build -pgo=off -race $(TEST_VERSION) -o $(SERVERS)/cellserver-race ./cmd/cellserver

# -count=1, because Go's cache of test results does not know that tests start other programs. The timeout
# is long, because machines may be slow. Vet is a target of its own. Linking is faster without information for debuggers (-w).
GOTEST := CELLSERVER_TEST_SERVERS=$(SERVERS) $(GO) test -pgo=off -count=1 -timeout 30m -vet=off -ldflags=-w

.PHONY: test
test: test-race test-plain test-transports ## run every test (needs redis-server for the differential ones)

# Tests that do little in several goroutines themselves. The race detector is on in the servers that they start; in the tests, it
# would take most of the time.
CLIENTS_ONLY := cli differential envoy exactness faults gateways generated hostile integration migrate packaging prometheus \
	rdb rules shells snippets upgrade
RACE := -tags raceserver

# The longest tests are first, because at the end nothing would run beside them.
.PHONY: test-race
test-race: test-servers ## run every test with the race detector
	$(GOTEST) -race ./test/remote ./test/worst ./internal/store/memory $$($(GO) list ./... | grep -vx $(CLIENTS_ONLY:%=-e cellserver/test/%))
	$(GOTEST) $(RACE) $(CLIENTS_ONLY:%=./test/%)

.PHONY: test-plain
test-plain: test-servers ## run the tests that differ without the race detector, such as those of memory
	$(GOTEST) ./internal/store/memory ./internal/store/remote ./internal/store/remote/ahead ./internal/commands \
		./internal/session ./internal/grpcapi ./internal/replay ./test/hostile ./test/simulation
	$(GOTEST) ./test/integration -run TestThrottleDoesNotAllocate
	$(GOTEST) ./test/envoy -run 'TestLargeRequests|TestUnfinishedMessages'

# Tests that take long, and for which the transport makes no difference. Those of handshakes always use TLS.
SAME := 'UnusualHTTP|UnfinishedHTTP|UnauthenticatedHTTP|OfHTTP|MaxMemory|WrongPasswords|TestLog'

.PHONY: test-transports
test-transports: test-servers ## run the tests that depend on the transport: with goroutines, over TLS, and with both
	CELLSERVER_TRANSPORT=goroutines $(GOTEST) $(RACE) -skip $(SAME) ./test/integration ./test/hostile
	CELLSERVER_TEST_TLS=yes $(GOTEST) $(RACE) -skip $(SAME)'|Handshake' ./test/integration ./test/hostile
	CELLSERVER_TEST_TLS=yes CELLSERVER_TRANSPORT=goroutines $(GOTEST) ./test/integration
	CELLSERVER_TRANSPORT=goroutines $(GOTEST) $(RACE) ./test/differential -run OfSeveralAgainstRedis
	CELLSERVER_TEST_TLS=yes $(GOTEST) $(RACE) ./test/differential -run OfSeveralAgainstRedis

# The comparison with redis-server concerns commands, so other transports add little to it: only messages between clients take
# another path there, and test-transports covers these.
.PHONY: test-long
test-long: test-servers ## compare with redis-server over each transport (nightly; test does so over one)
	$(GOTEST) ./test/differential
	CELLSERVER_TRANSPORT=goroutines $(GOTEST) ./test/differential
	CELLSERVER_TEST_TLS=yes $(GOTEST) ./test/differential
	CELLSERVER_TEST_TLS=yes CELLSERVER_TRANSPORT=goroutines $(GOTEST) ./test/differential

TIMES := 50
SUITES := ./...

.PHONY: test-repeat
test-repeat: test-servers ## run tests TIMES times in a row, because some have a random seed or a real clock (SUITES names packages)
	$(GOTEST) -count=$(TIMES) -failfast -timeout 0 $(SUITES)

PAUSE := 2s

.PHONY: test-slowly
test-slowly: test-servers ## play transcripts to real servers with PAUSE before each call: no reply may depend on a quick client (nightly)
	CELLSERVER_TEST_PAUSE=$(PAUSE) $(GOTEST) -parallel 64 ./test/differential ./test/snippets -run TestConversations

.PHONY: faults
faults: test-servers ## kill and stop servers that keep keys on a disk, and make the disk fail, many times (test does so a few times)
	CELLSERVER_TEST_FAULTS=long $(GOTEST) -v ./test/faults

.PHONY: exactness
exactness: test-servers ## let 200 clients use servers that share a store, while the store and the network fail, for minutes (test does so for seconds)
	CELLSERVER_TEST_EXACTNESS=long $(GOTEST) -v ./test/exactness

HOLD_CALLS := 10000000

.PHONY: holds
holds: ## compare HOLD_CALLS random calls with holds with a model that computes the whole history again (nightly; test makes 300,000)
	HOLD_CALLS=$(HOLD_CALLS) $(GO) test -count=1 -timeout 2h ./internal/hold -run 'TestCorrectionsGiveBackNoMore|TestFaultsOfCorrectionsAreFound' -v

SIMULATE := 1h
SEED := 1000

.PHONY: simulate
simulate: ## simulate the core of the remote store, with faults, for SIMULATE, from the seed SEED on (test does so for seconds)
	$(GO) test -count=1 -timeout 0 ./test/simulation -run 'TestSeeds|TestLeaseSeeds' -long $(SIMULATE) -first $(SEED)

.PHONY: simulate-scale
simulate-scale: ## simulate up to 1000 processes and 100 primaries, in two minutes (ARGS=-write writes the table and the pictures of docs/scale.md)
	$(GO) run ./test/simulation/scale $(ARGS)

.PHONY: check
check: ## run everything that CI runs, with a summary at the end
	@MAKE='$(MAKE)' test/check.sh vet tidy vulnerabilities test-servers \
		'test-redis-suite test-redis8 test-valkey test-redis-cell test-clients test-release test-helm soak' test-race test-plain test-transports

.PHONY: vet
vet: ## go vet and staticcheck
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.7.0 ./...
	for module in clients/go clients/go/adapters; do \
		(cd $$module && $(GO) vet ./... && $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.7.0 ./...) || exit 1; done

# The latest version whose dependencies are all available from the module proxy.
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.3.0

.PHONY: vulnerabilities
vulnerabilities: ## check the reachable code against the Go vulnerability database (VULNERABILITIES=required fails without it)
	@status=0; said=$$($(GO) run $(GOVULNCHECK) ./... 2>&1) || status=$$?; echo "$$said"; \
	case "$$status $$said" in \
		0*) ;; \
		*'govulncheck: fetching vulnerabilities'*) \
			echo 'make vulnerabilities: NOT CHECKED: the vulnerability database cannot be reached from here (GOVULNDB names another)' >&2; \
			[ "$(VULNERABILITIES)" != required ];; \
		*) exit 1;; \
	esac

.PHONY: tidy
tidy: ## check that go.mod and go.sum are tidy
	$(GO) mod tidy -diff
	$(GO) mod verify
	cd test/clients/go && $(GO) mod tidy -diff
	cd clients/go && $(GO) mod tidy -diff
	cd clients/go/adapters && $(GO) mod tidy -diff

.PHONY: test-clients
test-clients: build ## run real clients and limiter libraries in other languages, installed in bin/clients (CLIENTS=newest for the newest versions)
	clients/test.sh bin/cellserver
	test/clients/run.sh bin/cellserver
	test/clients/limiters/run.sh bin/cellserver
	test/snippets/run.sh bin/cellserver

# That of the last release.
CLIENTS_VERSION := $(patsubst v%,%,$(shell git describe --tags --abbrev=0 2>/dev/null || echo 0.0.0))

.PHONY: client-faults
client-faults: build ## let each client make 100,000 calls while connections are cut and servers fail (test-clients has 2,000)
	FAULTS=100000 clients/test.sh bin/cellserver

.PHONY: client-libraries
client-libraries: build ## play the own tests of limiter libraries with the stores of the clients, after make test-clients
	clients/libraries.sh bin/cellserver

.PHONY: client-first
client-first: build ## measure the time from an empty folder to the first decision in each language, after make test-clients
	clients/first.sh bin/cellserver

.PHONY: client-bars
client-bars: build ## compare the client for Go with go-redis alone: the CPU time of the server per call, and the median time of a call
	cd clients/go && CELLSERVER=$(CURDIR)/bin/cellserver $(GO) test -run '^$$' -bench Bars -benchtime 1x .

.PHONY: clients
clients: ## build the packages of the clients in dist/clients (after make test-clients, which installs the compiler of TypeScript)
	NODE_MODULES=$(CURDIR)/bin/clients/own_node/node_modules clients/build.sh dist/clients $(CLIENTS_VERSION)

.PHONY: test-redis-suite
test-redis-suite: build ## run Redis's own tests; those not listed must pass (ARGS=-update removes passing ones from the lists)
	test/redis-suite/run.sh bin/cellserver $(ARGS)

.PHONY: test-valkey
test-valkey: test-servers ## test the remote store with a valkey-server of 8.1 or later (downloads one if possible; VALKEY=required fails without one)
	CELLSERVER_TEST_SERVERS=$(SERVERS) test/valkey/run.sh

.PHONY: test-redis-cell
test-redis-cell: test-servers ## test the remote store together with redis-cell on the same keys (built by cargo if possible; REDISCELL=required fails without it)
	CELLSERVER_TEST_SERVERS=$(SERVERS) test/rediscell/run.sh $(ARGS)

.PHONY: test-traefik
test-traefik: ## run the configuration of docs/gateways.md in Traefik, which takes minutes to build (TRAEFIK=required fails without it)
	test/gateways/traefik.sh $(ARGS)

.PHONY: test-redis8
test-redis8: test-servers ## compare recorded replies with a redis-server of 8.4 or later (downloads one if possible; REDIS8=required fails without one)
	CELLSERVER_TEST_SERVERS=$(SERVERS) test/redis8/run.sh

.PHONY: rewrite
rewrite: ## rewrite transcripts, plots and the generated parts of docs/; review the diff
	$(GO) test ./internal/commands -run '^(TestConversations|TestConversationsInPages|TestReferenceIsCurrent|TestWorstCallsAreDocumented)$$' -rewrite
	$(GO) test ./cmd/cellserver -run TestConfigurationPage -rewrite
	$(GO) test ./test/migrate -run TestPageIsCurrent -rewrite
	$(GO) test ./bench/report -run TestPublishedFollowsFromResults -rewrite
	$(GO) test ./test/simulation/scale -run TestPageFollowsFromResults -rewrite
	$(GO) test ./test/prometheus -run "TestPageIsCurrent|TestAlertsHaveRunbooks" -rewrite
	$(GO) run ./bench/limiters

# TZDATA chooses a version, as in make zoneinfo TZDATA===2026.6. The same version gives the same bytes.
TZDATA :=

.PHONY: zoneinfo
zoneinfo: ## embed the newest time zone database, from PyPI's package tzdata (needs pip)
	rm -rf bin/tzdata
	python3 -m pip download --quiet --no-deps --only-binary :all: --dest bin/tzdata 'tzdata$(TZDATA)'
	$(GO) run ./internal/calendar/zonezip bin/tzdata/*.whl internal/calendar/zoneinfo.zip

FUZZTIME := 60s

.PHONY: fuzz
fuzz: ## fuzz each target for FUZZTIME
	@grep -roE '^func Fuzz[A-Za-z]+' --include='*_test.go' internal | sed 's|/[^/]*:func | |' | sort | while read -r folder target; do \
		$(GO) test ./$$folder -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) </dev/null || exit 1; \
	done

FOR := 60s

.PHONY: soak
soak: build ## run normal and hostile traffic together for FOR (published: 30m)
	$(GO) run ./test/soak -server bin/cellserver -for $(FOR) $(ARGS)

.PHONY: soak-everything
soak-everything: build ## the same with everything on: a disk, TLS, HTTP, gRPC, the page, policies that are reloaded, waiting calls, holds (nightly: 1h)
	$(GO) run ./test/soak -server bin/cellserver -for $(FOR) -everything $(ARGS)

.PHONY: micro
micro: ## run the micro-benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./internal/...

BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
SINCE := $(shell git describe --tags --abbrev=0 2>/dev/null)

.PHONY: benchstat
benchstat: ## compare the micro-benchmarks with the last tag (SINCE=commit for another)
	@test -n "$(SINCE)" || { echo 'make benchstat: there is no tag yet; name a commit: SINCE=...' >&2; exit 1; }
	@rm -rf .benchstat && git worktree prune && git worktree add -q --detach .benchstat $(SINCE)
	@trap 'git worktree remove --force .benchstat' EXIT; set -e; \
	for round in 1 2 3 4 5 6; do \
		echo "round $$round of 6" >&2; \
		(cd .benchstat && $(GO) test -run '^$$' -bench . -benchtime 200ms ./internal/...) >> .benchstat/before.txt; \
		$(GO) test -run '^$$' -bench . -benchtime 200ms ./internal/... >> .benchstat/after.txt; \
	done; \
	$(GO) run $(BENCHSTAT) .benchstat/before.txt .benchstat/after.txt

.PHONY: instructions
instructions: ## count the instructions of a CL.THROTTLE (SINCE=commit compares with it; needs valgrind)
	bench/instructions.sh $(SINCE)

.PHONY: bench-replay
bench-replay: build ## compare the CPU time of policies replay with gawk's, on a log of a million lines (needs gawk; ROUNDS=n)
	bench/replay.sh

# With this profile, the compiler inlines the functions of the hot path: a CL.THROTTLE with 64 calls in flight takes a tenth less
# CPU time.
.PHONY: pgo
pgo: ## record the profile for optimized builds (cmd/cellserver/default.pgo) again, in three runs
	@mkdir -p bin/pgo
	for run in 1 2 3; do \
		$(GO) test -run '^$$' -bench '^Benchmark(Session|ID|Values|Take|All|Limiters)$$' -benchtime 3s -cpuprofile bin/pgo/$$run -o /dev/null ./internal/commands || exit 1; \
	done
	$(GO) tool pprof -proto bin/pgo/1 bin/pgo/2 bin/pgo/3 > cmd/cellserver/default.pgo

.PHONY: bench
bench: build ## compare CPU per call with redis-server, 21 alternating rounds (ARGS=--list lists all scenarios; ARGS=--publish writes the results)
	$(GO) run ./bench $(ARGS)

.PHONY: compare
compare: build ## compare with redis-cell, throttlecrab, redis_rate and a script, in 15 minutes, and write docs/compare.md (cargo and protoc build the first two)
	bench/compare.sh $(ARGS)
	$(MAKE) compare-envoy

.PHONY: compare-envoy
compare-envoy: test-servers ## measure what Envoy's rate limit service costs, used and unused, and check the bars (LIMITADOR=program compares limitador-server, too)
	LIMITADOR=$(LIMITADOR) $(GOTEST) ./test/envoy -run 'TestCost$$|TestNeeds|TestLimitador|TestUnused' -cost -v

.PHONY: test-release
test-release: ## build a release for linux/amd64 twice, and install its .deb and its .rpm (snapshot builds all platforms)
	test/release/run.sh

.PHONY: test-older
test-older: ## run an older version beside this one on one store, and go back to it: make test-older OF=commit
	test/upgrade/older.sh $(OF)

.PHONY: test-fresh
test-fresh: ## run the commands of README.md in a new Debian with Go and git alone, as root, in an hour (ARGS=run starts the server only)
	test/fresh/run.sh $(ARGS)

.PHONY: test-helm
test-helm: ## check the chart in deploy/helm with helm, and compare it with the plain manifests
	test/helm/run.sh

.PHONY: snapshot
snapshot: ## build the last commit as a release into dist/: archives and packages of all platforms, checksums, SBOM
	test/release/run.sh all

.PHONY: release
release: ## publish the tag of this commit as a release (the release workflow does so, with a GITHUB_TOKEN)
	packaging/tools.sh
	PATH="$(CURDIR)/bin/tools:$$PATH" goreleaser release --clean

.PHONY: images
images: ## build the images of a release, scan them and list their contents; push them if IMAGE=REPOSITORY (RELEASE=1.0.0)
	packaging/images.sh $(or $(RELEASE),$(VERSION:v%=%)) $(IMAGE)

.PHONY: sign
sign: ## sign the checksums in dist/ and the image with cosign (the release workflow does so)
	packaging/sign.sh

DOCKER := docker

.PHONY: docker
docker: ## build the image cellserver (DOCKER=podman for another engine; ARGS="--platform linux/amd64,linux/arm64" for both)
	@$(DOCKER) info >/dev/null 2>&1 || { echo 'make docker: no engine answers "$(DOCKER) info"; start one, or name another: DOCKER=podman' >&2; exit 1; }
	DOCKER_BUILDKIT=1 $(DOCKER) build --build-arg VERSION=$(VERSION) -t cellserver:$(VERSION) -t cellserver:latest $(ARGS) .
