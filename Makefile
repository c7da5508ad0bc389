# Octet. `make help` lists what there is.

SHELL       := /bin/bash
GO          ?= go
BIN         := bin/octet
DEMO        := bin/octet-demo
PACKAGES    := ./...
# What the demo runs: the embedded pair, unless a Hugging Face folder is named.
MODEL       ?=
DRAFT       ?=
PROMPT      ?=
MODEL_FLAGS := $(if $(MODEL),--model $(MODEL)) $(if $(DRAFT),--draft $(DRAFT))
TEST_FLAGS  ?= -tags invariants
# Nobody reads gRPC's own traces; without them html/template and what it keeps alive
# stay out of the binary. gRPC has an HTTP/2 of its own, and the OpenAI listener speaks
# HTTP/1.1: net/http's second one stays out too.
CPU_TAGS    := grpcnotrace,nethttpomithttp2
TAGS        := $(CPU_TAGS)

# Where there is a C compiler the binary also has the CUDA backend. That needs no
# CUDA toolkit: cuda.h is ours, and our libcuda.a finds the driver at run time.
CC          ?= cc
ifneq ($(shell command -v $(CC)),)
CUDA_STUB     := bin/cuda/libcuda.a
CUDA_TAGS     := -tags cuda
TAGS          := $(TAGS),cuda
CUDA_PACKAGES := ./kernels/cuda/... ./internal/telemetry/... ./collectives/... ./model/load/... ./rank/... ./cmd/octet/...
CUDA_ENV      := CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations -I$(CURDIR)/kernels/cuda/include" CGO_LDFLAGS="-O2 -g -L$(CURDIR)/bin/cuda"
endif

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(DEMO) ## Eight rank processes write Go with speculation
	$(DEMO) generate $(MODEL_FLAGS) --ranks 8 $(if $(PROMPT),'$(PROMPT)')

.PHONY: build
build: $(CUDA_STUB) ## Build bin/octet, with CUDA where there is a C compiler
	$(CUDA_ENV) $(GO) build -trimpath -tags $(TAGS) -o $(BIN) ./cmd/octet

# The same program for CPUs alone, as it is built soonest where nothing is in the
# build cache: no C, and no debug information to write. The code is no other.
.PHONY: $(DEMO)
$(DEMO):
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(CPU_TAGS) -gcflags=all=-dwarf=false -ldflags='-s -w' -o $@ ./cmd/octet

bin/cuda/libcuda.a: kernels/cuda/stub/trampoline.c $(wildcard kernels/cuda/include/*)
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -fPIC -Ikernels/cuda/include -c $< -o $(@D)/trampoline.o
	rm -f $@ && ar rcs $@ $(@D)/trampoline.o

.PHONY: test
test: ## Run the tests (ranks 1, 3 and 8)
	$(GO) test $(TEST_FLAGS) -timeout 15m $(PACKAGES)

.PHONY: test-full
test-full: ## Run the full matrix of rank counts and modes (long)
	OCTET_TEST_FULL=1 $(GO) test $(TEST_FLAGS) -timeout 60m $(PACKAGES)

.PHONY: torture
torture: build ## A million random all-reduces among ranks that are stopped and resumed
	$(BIN) bench torture

.PHONY: race
race: ## Run the tests under the race detector, in their short form
	CGO_ENABLED=1 $(GO) test -race -short -vet=off -timeout 15m $(PACKAGES)

.PHONY: test-cuda
test-cuda: $(CUDA_STUB) ## Vet and test the CUDA packages; tests that need devices skip
	$(CUDA_ENV) $(GO) vet $(CUDA_TAGS) $(CUDA_PACKAGES)
	$(CUDA_ENV) $(GO) test $(CUDA_TAGS) -count 1 -timeout 10m ./kernels/cuda/... ./internal/telemetry/...

.PHONY: lint
lint: ## gofumpt, vet and staticcheck
	@unformatted=$$($(GO) tool gofumpt -l .) || exit 1; \
		if [ -n "$$unformatted" ]; then echo "gofumpt would change:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet -tags invariants $(PACKAGES)
	$(GO) tool staticcheck -tags invariants $(PACKAGES)

.PHONY: generate
generate: ## Regenerate the protobuf code and the AVX assembly
	$(GO) generate $(PACKAGES)

.PHONY: kernels
kernels: ## Recompile the CUDA kernels to PTX (needs clang 19, no toolkit)
	kernels/cuda/build-kernels.sh

.PHONY: checkgenerate
checkgenerate: generate kernels ## Fail if a generated file is not what its generator writes
	@stale=$$(git status --porcelain -- '*.pb.go' 'kernels/cpu/*_amd64.*' '*.ptx') || exit 1; \
		if [ -n "$$stale" ]; then echo "run make generate kernels and commit:"; echo "$$stale"; exit 1; fi

.PHONY: planted
planted: ## Plant bugs in the real packages; the simulation must find each within 500 seeds
	OCTET_TEST_FULL=1 $(GO) test -run 'TestPlanted' -v -timeout 60m ./internal/simulation

STRIKES     ?= 300
.PHONY: chaos
chaos: build ## Break a group of real processes 300 times under load and check every invariant
	$(BIN) fault run deploy/faults/chaos.fault --ranks 8 --streams 8 --strikes $(STRIKES)

SOAK        ?= 30m
.PHONY: soak
soak: build ## Half an hour of losses under load: nothing may grow
	$(BIN) fault run deploy/faults/soak.fault --ranks 8 --streams 8 --for $(SOAK)

.PHONY: bench
bench: build ## The benchmarks of the main job, each against its floor
	$(BIN) bench round --ranks 1
	$(BIN) bench round --ranks 8
	$(BIN) bench decode $(MODEL_FLAGS) --ranks 8 --speculate off,eagle3,auto
