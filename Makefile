# make            lists the targets
# make run        starts cellserver on 127.0.0.1:6379; ARGS="--port 7000" passes options on

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)
GO      := go

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## build, and start on 127.0.0.1:6379 (ARGS="--port 7000" passes options on)
	./bin/cellserver $(ARGS)

.PHONY: build
build: ## build bin/cellserver
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/cellserver ./cmd/cellserver

.PHONY: test
test: ## run every test, with the race detector (needs redis-server for the differential ones)
	$(GO) test -race ./...

.PHONY: check
check: vet tidy test test-clients ## everything that CI holds the project to

.PHONY: vet
vet: ## go vet and staticcheck
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.7.0 ./...

.PHONY: tidy
tidy: ## go.mod and go.sum say what the code needs, no more
	$(GO) mod tidy -diff
	$(GO) mod verify

.PHONY: test-clients
test-clients: build ## real clients in other languages (installs them in a temporary place)
	test/clients/run.sh bin/cellserver

.PHONY: rewrite
rewrite: ## write conversations and the README's reference anew, to be reviewed as a diff
	$(GO) test ./internal/commands -run 'TestConversations|TestReadme' -rewrite

FUZZTIME := 60s

.PHONY: fuzz
fuzz: ## fuzz each target for FUZZTIME
	@for target in resp:FuzzReader resp:FuzzInline resp:FuzzWriter gcra:FuzzStep; do \
		$(GO) test ./internal/$${target%%:*} -run '^$$' -fuzz "^$${target##*:}$$" -fuzztime $(FUZZTIME) || exit 1; \
	done

.PHONY: micro
micro: ## micro-benchmarks beside the code
	$(GO) test -run '^$$' -bench . -benchmem ./internal/...

.PHONY: bench
bench: build ## CPU per CL.THROTTLE beside redis-server's INCR: 21 alternating rounds (ARGS="-rounds 5")
	$(GO) run ./bench -server bin/cellserver $(ARGS)
