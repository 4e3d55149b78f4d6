# `make help` lists the targets. Everything that is not in git goes to .tools and
# bin, both of which `make clean` removes.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# No build changes go.mod or go.sum.
export GOFLAGS := $(strip $(GOFLAGS) -mod=readonly)

# Modules of their own, so that plots, kustomize and Helm stay out of the product's go.mod.
BENCH_MODULE := e2e/bench
MANIFESTS_MODULE := e2e/manifests
# So is the picker inside Envoy, which is a shared library in C and Go.
ENVOY_MODULE := envoy-module
# And the tests of the page, with the driver of the browser.
PAGE_MODULE := e2e/page
# And the tests with the control planes of gateways.
GATEWAYS_MODULE := e2e/gateways
MODULES := $(BENCH_MODULE) $(ENVOY_MODULE) $(PAGE_MODULE) $(MANIFESTS_MODULE) $(GATEWAYS_MODULE) \
	e2e/gateways/contour e2e/gateways/envoygateway e2e/gateways/istio e2e/kubernetes/inferencepool e2e/bench/epp tools

LINTER := .tools/bin/golangci-lint
RUNNER := .tools/bin/gotestsum

# Runs tests, as `$(call gotest,module,name) FLAGS`. The tests start real processes, on machines that others load: a
# failed one runs once more by itself. One that passes then is listed at the end of `make test`, as a defect to repair.
# The linter has vetted them.
gotest = mkdir -p bin/flaky && cd $(1) && GOFLAGS="$(GOFLAGS) -vet=off" $(CURDIR)/$(RUNNER) \
	--format pkgname-and-test-fails --hide-summary skipped,output --rerun-fails=1 --rerun-fails-max-failures=4 \
	--rerun-fails-run-root-test --rerun-fails-abort-on-data-race --rerun-fails-report $(CURDIR)/bin/flaky/$(2)

VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
ARGS      ?=
FUZZTIME  ?= 10s
REQUESTS  ?= 1000000
BENCHTIME ?= 1s
BENCH     ?= .
LATENCY   ?= 1000

step = @printf '\n==> %s\n' "$(1)"

##@ Use

.PHONY: demo
demo: need-go tools-envoy ## Envoy's own least request against Steelyard's weights, live (ARGS="--duration 30s")
	@go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/steelyard ./cmd/steelyard-demo
	@bin/steelyard-demo $(ARGS)

.PHONY: demo-queue
demo-queue: need-go module tools-envoy ## two classes in a queue at twice the load (ARGS="--duration 1m")
	@go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/steelyard-demo
	@ENVOY_DYNAMIC_MODULES_SEARCH_PATH=$(CURDIR)/bin bin/steelyard-demo queue $(ARGS)

.PHONY: demo-prefix
demo-prefix: need-go module tools-envoy ## conversations on engines with prefix caches, in three ways
	@go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/steelyard-demo
	@ENVOY_DYNAMIC_MODULES_SEARCH_PATH=$(CURDIR)/bin bin/steelyard-demo prefix $(ARGS)

.PHONY: demo-router
demo-router: need-go module tools-envoy ## busy replicas are scaled up: round robin against steelyard router
	@go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/steelyard-demo
	@ENVOY_DYNAMIC_MODULES_SEARCH_PATH=$(CURDIR)/bin bin/steelyard-demo router $(ARGS)

.PHONY: build
build: need-go ## bin/steelyard
	@go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/steelyard ./cmd/steelyard

.PHONY: module
module: need-cc ## bin/libsteelyard.so, the picker inside Envoy 1.38 to 1.40 (GOARCH=arm64 CC=…)
	@CGO_ENABLED=1 go build -C $(ENVOY_MODULE) -buildmode=c-shared -trimpath -ldflags '-s -w' \
	-o $(CURDIR)/bin/libsteelyard.so .
	@rm -f bin/libsteelyard.h

.PHONY: release
release: need-go ## archives, SBOMs, the chart and checksums of a version, into dist/ (VERSION=0.1.0)
	@REGISTRY=$(REGISTRY) tools/release.sh $(VERSION:v%=%)

##@ Check

# It installs what it lacks into .tools. What starts programs waits more than it computes, so two parts run at a time.
.PHONY: test
test: tools tidy format lint clear-flaky unit istio ## everything that checks
	$(call step,tests of running programs: page; e2e; manifests; benches)
	@mkdir -p bin && printf '%s\n' page e2e manifests benches | xargs -P 2 -I{} sh -c \
	'$(MAKE) {} >bin/{}.log 2>&1; code=$$?; cat bin/{}.log; exit $$code'
	$(call step,all checks passed)
	@sed 's/^/failed once, then passed: /' bin/flaky/* 2>/dev/null || true

# Files with the build tag long: long worlds, requests by the hundred thousand, kills at random, all compilers, and the
# whole matrix of fleets. The packages' other tests run with them.
.PHONY: test-long
test-long: need-cc tools tools-zig clear-flaky $(RUNNER) ## what takes too long for each change
	$(call step,long tests)
	@$(call gotest,.,long) --packages "./weighting/... ./sim/... ./collectors/inflight ./cmd/steelyard ./e2e/chaos \
	./e2e/counts ./e2e/queue ./e2e/release" -- -tags long -count=1 -p 1 -timeout 45m
	@$(call gotest,$(BENCH_MODULE),matrix) --packages ./matrix -- -tags long -count=1 -timeout 20m

.PHONY: clear-flaky
clear-flaky:
	@rm -rf bin/flaky

.PHONY: format
format: need-go
	$(call step,gofmt)
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then printf 'not formatted, run gofmt -w on:\n%s\n' "$$unformatted"; exit 1; fi

.PHONY: tidy
tidy: need-go
	$(call step,go mod tidy)
	@for module in . $(MODULES); do \
	go mod tidy -C $$module -diff || { \
	echo "go.mod or go.sum in $$module is not tidy: run go mod tidy -C $$module"; exit 1; }; \
	done

.PHONY: lint
lint: $(LINTER)
	$(call step,golangci-lint)
	@for module in . $(MODULES); do \
	(cd $$module && GOLANGCI_LINT_CACHE=$(CURDIR)/.tools/lint-cache \
	$(CURDIR)/$(LINTER) run --allow-parallel-runners ./...); done
	@go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# Built from source, which takes two minutes of CPU, and again only when tools/go.mod changes.
$(LINTER): tools/go.mod tools/go.sum | need-go
	$(call step,golangci-lint: build)
	@go build -C tools -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(RUNNER): tools/go.mod tools/go.sum | need-go
	@go build -C tools -o $(CURDIR)/$@ gotest.tools/gotestsum
	@touch $@

# Packages whose tests compute, which takes ten times as long with the race detector: with it, only those of their tests
# run that are named Concurrent.
computing := . ./weighting/... ./sim/... ./picking ./picking/queue ./cmd/internal/simulate ./collectors/ledger \
	./collectors/modelserver ./controlplane/admin/history

.PHONY: unit
unit: need-cc tools $(RUNNER) ## tests of the packages, with the race detector where there is anything to race
	$(call step,go test -race)
	@$(call gotest,.,unit) --packages "$$({ go list ./... | grep -v '/e2e/'; go list ./e2e/rig/...; } | \
	grep -vxF "$$(go list $(computing))" | xargs)" -- -race -p 3 -timeout 20m
	@$(call gotest,.,concurrent) --packages "./collectors/ledger ./collectors/modelserver ./controlplane/admin/history" \
	-- -race -run Concurrent
	@$(call gotest,$(ENVOY_MODULE),module) --packages ./... -- -race -timeout 10m
	$(call step,go test of what computes)
	@$(call gotest,.,computing) --packages "$(computing)" -- -timeout 20m

# Subjects wait more than they compute, so several run at once.
.PHONY: e2e
e2e: tools $(RUNNER) ## tests with real Envoys, Redis and model servers, end to end (SUBJECT=weights: of one subject)
	$(call step,end to end)
	@packages=$$(go list $(or $(SUBJECT:%=./e2e/%/...),./e2e/...) | grep -vE '/e2e/(rig/|images$$|envoys$$)' || true); \
	if [ -z "$$packages" ]; then echo "no package under e2e holds end-to-end tests"; exit 1; fi; \
	$(call gotest,.,e2e) --packages "$$(echo $$packages)" -- -count=1 -p 3 -parallel 2 -timeout 30m

.PHONY: manifests
manifests: tools $(RUNNER) ## tests of manifests, chart and examples, with a Kubernetes API server
	$(call step,manifests)
	@$(call gotest,$(MANIFESTS_MODULE),manifests) --packages ./... -- -count=1 -timeout 20m

# The short form of test-gateways. It computes only, but Istio's packages take five minutes to build at first.
.PHONY: istio
istio: tools-envoy $(RUNNER) ## what bootstrap writes for gateways of Istio, in Istio's own translator and in Envoy
	$(call step,istio)
	@$(call gotest,$(GATEWAYS_MODULE)/istio,istio) --packages . -- -count=1 -timeout 10m

.PHONY: benches
benches: tools $(RUNNER) ## tests of the benchmarks themselves
	$(call step,benches)
	@$(call gotest,$(BENCH_MODULE),benches) --packages ./... -- -p 1 -timeout 20m

.PHONY: page
page: need-cc tools-envoy tools-chromium $(RUNNER) ## tests of the page in a real Chromium; screenshots into bin/page
	$(call step,page)
	@$(call gotest,$(PAGE_MODULE),page) --packages ./... -- -count=1 -timeout 20m

# Envoy Gateway and Istio take ten minutes each to build at first, Contour three.
.PHONY: test-gateways
test-gateways: tools-envoy tools-etcd tools-apiserver tools-envoy-gateway tools-istio tools-contour
test-gateways: need-cc ## tests on Envoy Gateway, Istio and Contour; needs root
	$(call step,gateways)
	@cd $(GATEWAYS_MODULE) && go test -count=1 -timeout 30m -v ./...

# The tests of each Envoy take two to three minutes.
.PHONY: test-envoys
test-envoys: need-cc tools-envoys tools-redis ## tests on Envoy 1.36 to 1.40, for the table in docs/attach-envoy.md
	$(call step,envoys)
	@go test ./e2e/envoys -count=1 -timeout 60m

# A job of its own in CI: both programs are built with the flags of the images, which takes minutes at first.
.PHONY: images
images: need-cc tools-envoy tools-rootfs ## the Dockerfile's steps without a container engine, and both images' programs
	$(call step,images)
	@go test ./e2e/images -count=1 -timeout 30m

.PHONY: chaos
chaos: need-go tools-envoy tools-redis ## ten minutes of every part killed and cut off (ARGS="--length 1m --seed 7")
	@go test -tags long ./e2e/chaos -run '^TestRequestsFailOnlyWhereAServerOrAnEnvoyDiedWithThem$$|^TestNoRequestThat' \
	-count=1 -v -timeout 0 -args --length 10m --seed 0 $(ARGS)

.PHONY: counts
counts: need-cc tools-envoy tools-redis ## a million requests and kills, then all counts are zero (REQUESTS=1000000)
	@go test -tags long ./e2e/counts -count=1 -v -timeout 0 -requests $(REQUESTS)

.PHONY: fuzz
fuzz: need-go ## every fuzz target for FUZZTIME (10s)
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: need-go ## benchmarks that match BENCH (all), each for BENCHTIME (1s)
	@go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) ./...

.PHONY: bench-latency
bench-latency: need-go tools-envoy ## from a request to the last of 10 Envoys' ACKs (LATENCY=1000 requests)
	@go test ./cmd/internal/daemon -run '^$$' -bench ArrivalToAck -benchtime $(LATENCY)x -timeout 30m

.PHONY: bench-placement
bench-placement: need-go tools-envoy tools-redis ## waits on Envoys under every policy, into bench/ (ARGS="--quick")
	@go build -C $(BENCH_MODULE) -o $(CURDIR)/bin/bench-placement ./placement
	@bin/bench-placement $(ARGS)

.PHONY: bench-llm
bench-llm: need-go tools-envoy ## times to the first token of LLM requests on Envoys, into bench/ (ARGS="--quick")
	@go build -C $(BENCH_MODULE) -o $(CURDIR)/bin/bench-llm ./llm
	@bin/bench-llm $(ARGS)

.PHONY: bench-faults
bench-faults: tools-envoy tools-epp tools-etcd tools-apiserver
bench-faults: need-go ## how soon a failing server gets nothing new, and what is lost (ARGS="--quick")
	@go build -C $(BENCH_MODULE) -o $(CURDIR)/bin/bench-faults ./faults
	@bin/bench-faults $(ARGS)

.PHONY: bench-law
bench-law: need-go ## simulated fleets under this law and that of a commit, into bench/ (BASE=main~1 ARGS="--seeds 1")
	@tools/bench-law.sh "$(BASE)" $(ARGS)

.PHONY: bench-replicas
bench-replicas: need-go tools-envoy ## two replicas against one, into bench/replicas/ (ARGS="--quick")
	@mkdir -p bench/replicas
	@go build -C $(BENCH_MODULE) -o $(CURDIR)/bin/bench-placement ./placement
	@go build -C $(BENCH_MODULE) -o $(CURDIR)/bin/bench-llm ./llm
	@failed=0; \
	bin/bench-placement --out bench/replicas --service 1s \
	--rows least_request,steelyard_access_log,steelyard_access_log+replicas,steelyard_access_log+cut $(ARGS) || \
	failed=1; \
	bin/bench-llm --out bench/replicas --policies least_request,steelyard,steelyard+replicas,steelyard+cut $(ARGS) || \
	failed=1; \
	go test ./cmd/internal/daemon -run '^$$' -bench 'ArrivalToAckOfReplicas$$' -benchtime $(LATENCY)x -timeout 30m \
	-latency-json $(CURDIR)/bench/replicas/latency.json || failed=1; \
	exit $$failed

# What a choice for each request costs, and what it is worth.
.PHONY: bench-picker
bench-picker: need-cc tools-envoy ## latency and waits with module and ext_proc, into bench/picker/ (ARGS="--quick")
	@mkdir -p bench/picker
	@go build -C $(BENCH_MODULE) -o $(CURDIR)/bin/bench-picker ./picker
	@go build -C $(BENCH_MODULE) -o $(CURDIR)/bin/bench-placement ./placement
	@go build -C $(BENCH_MODULE) -o $(CURDIR)/bin/bench-llm ./llm
	@failed=0; \
	bin/bench-picker $(ARGS) || failed=1; \
	bin/bench-placement --out bench/picker --service 1s,50ms \
	--rows least_request,steelyard_access_log,steelyard_access_log+module \
	--rows steelyard_access_log+module+queue,shortest_queue $(ARGS) || failed=1; \
	bin/bench-llm --out bench/picker --conversations \
	--policies steelyard,steelyard+module,steelyard+module+prefix $(ARGS) || failed=1; \
	exit $$failed

.PHONY: bench-cost
bench-cost: need-go ## CPU, memory and time to the ACKs of steelyard serve, into bench/cost.json (ARGS="--quick")
	@go build -C $(BENCH_MODULE) -o $(CURDIR)/bin/bench-cost ./cost
	@bin/bench-cost --json bench/cost.json $(ARGS)

.PHONY: bench-kubernetes
bench-kubernetes: need-go tools-etcd tools-apiserver ## change of an EndpointSlice to 10 ACKs; memory of 5,000 endpoints
	@go test ./e2e/kubernetes -run '^$$' -bench ChangeToAck -benchtime 500x -timeout 20m
	@go test ./e2e/kubernetes -run '^$$' -bench FiveThousand -benchtime 1x -timeout 20m

.PHONY: vuln
vuln: need-go ## known vulnerabilities in what is used; asks the Go vulnerability database
	@for module in . $(ENVOY_MODULE); do go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 -C $$module ./...; done

##@ Set up

programs := tools-envoy tools-redis tools-promtool tools-prometheus tools-triton tools-etcd tools-apiserver \
	tools-chromium

.PHONY: tools
tools: need-go $(programs) ## all that the tests run, into .tools/bin

.PHONY: $(programs) tools-zig tools-rootfs tools-envoy-gateway tools-envoys tools-istio tools-contour tools-epp
tools-envoy: ## Envoy 1.40: ENVOY=, else from PATH, else downloaded
tools-envoys: ## Envoy 1.36.4, 1.37.0, 1.38.3, 1.39.3 and 1.40.0, downloaded
tools-redis: ## redis-server: REDIS_SERVER=, else from PATH, else Debian's
tools-promtool: ## promtool: PROMTOOL=, else from PATH, else Debian's
tools-prometheus: ## Prometheus: PROMETHEUS=, else from PATH, else Debian's
tools-triton: ## Triton Inference Server 2.51.0 for the CPU (x86_64)
tools-etcd: ## etcd: ETCD=, else from PATH, else Debian's
tools-apiserver: ## kube-apiserver 1.36: KUBE_APISERVER=, else built from Go modules
tools-chromium: ## Chromium: CHROMIUM=, else from PATH, else Debian's; axe-core from the npm registry
tools-zig: ## Zig's C compiler: the module for amd64 and arm64, from any of them
tools-rootfs: ## what stands for the base images in `make images`, of unpacked Debian packages
tools-envoy-gateway: ## Envoy Gateway 1.9: ENVOY_GATEWAY=, else built from Go modules
tools-istio: ## istiod and pilot-agent 1.31: PILOT_DISCOVERY= and PILOT_AGENT=, else built from Go modules
tools-contour: ## Contour 1.33: CONTOUR=, else built from Go modules
tools-epp: ## the Inference Extension's endpoint picker 1.5: EPP=, else built from Go modules
$(programs) tools-zig tools-rootfs tools-envoy-gateway tools-envoys tools-istio tools-contour tools-epp: tools-%:
	@tools/$*.sh

.PHONY: clean
clean: ## remove .tools and bin
	@rm -rf .tools bin

.PHONY: need-go
need-go:
	@command -v go >/dev/null || { echo "go is needed: Go 1.26 or newer, see https://go.dev/doc/install"; exit 1; }

.PHONY: need-cc
need-cc:
	@set -- $$(go env CC); command -v "$$1" >/dev/null || { \
	echo "the module and Go's race detector need a C compiler: apt-get install gcc libc6-dev (as root)"; exit 1; }

.PHONY: help
help:
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
