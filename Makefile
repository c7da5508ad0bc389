# Octet. `make help` lists what there is.

SHELL       := /bin/bash
GO          ?= go
BIN         := bin/octet
PACKAGES    := ./...
# What the demo runs: the embedded pair, unless a Hugging Face folder is named.
MODEL       ?=
DRAFT       ?=
PROMPT      ?=
MODEL_FLAGS := $(if $(MODEL),--model $(MODEL)) $(if $(DRAFT),--draft $(DRAFT))
TEST_FLAGS  ?= -tags invariants

# Where there is a C compiler the binary also has the CUDA backend. That needs no
# CUDA toolkit: cuda.h is ours, and our libcuda.a finds the driver at run time.
CC          ?= cc
ifneq ($(shell command -v $(CC)),)
CUDA_STUB   := bin/cuda/libcuda.a
CUDA_TAGS   := -tags cuda
CUDA_ENV    := CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations -I$(CURDIR)/kernels/cuda/include" CGO_LDFLAGS="-O2 -g -L$(CURDIR)/bin/cuda"
endif

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## Eight rank processes write Go with speculation
	$(BIN) generate $(MODEL_FLAGS) --ranks 8 $(if $(PROMPT),'$(PROMPT)')

.PHONY: build
build: $(CUDA_STUB) ## Build bin/octet, with CUDA where there is a C compiler
	$(CUDA_ENV) $(GO) build -trimpath $(CUDA_TAGS) -o $(BIN) ./cmd/octet

bin/cuda/libcuda.a: kernels/cuda/stub/trampoline.c $(wildcard kernels/cuda/include/*)
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -fPIC -Ikernels/cuda/include -c $< -o $(@D)/trampoline.o
	rm -f $@ && ar rcs $@ $(@D)/trampoline.o

.PHONY: test-cuda
test-cuda: $(CUDA_STUB) ## Vet and test the CUDA packages; tests that need devices are counted and skipped
	$(CUDA_ENV) $(GO) vet $(CUDA_TAGS) ./kernels/cuda/... ./collectives/...
	$(CUDA_ENV) $(GO) test $(CUDA_TAGS) -count 1 -timeout 10m ./kernels/cuda/...

.PHONY: kernels
kernels: ## Recompile the CUDA kernels to PTX (clang 19)
	kernels/cuda/build-kernels.sh

.PHONY: checkkernels
checkkernels: kernels ## Fail if the committed PTX is not what the sources compile to
	@git diff --exit-code -- '*.ptx' || { echo "PTX is stale: run make kernels and commit"; exit 1; }

.PHONY: test
test: ## Run the tests (ranks 1, 3 and 8)
	$(GO) test $(TEST_FLAGS) -timeout 10m $(PACKAGES)

.PHONY: test-full
test-full: ## Run the full matrix of rank counts and modes (long)
	OCTET_TEST_FULL=1 $(GO) test $(TEST_FLAGS) -timeout 60m $(PACKAGES)

.PHONY: race
race: ## Run the tests of the concurrent packages under the race detector
	CGO_ENABLED=1 $(GO) test -race -short -timeout 20m $(PACKAGES)

.PHONY: lint
lint: ## gofumpt, vet and staticcheck
	@unformatted=$$($(GO) tool gofumpt -l .); \
		if [ -n "$$unformatted" ]; then echo "gofumpt would change:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet -tags invariants $(PACKAGES)
	$(GO) tool staticcheck -tags invariants $(PACKAGES)

.PHONY: generate
generate: ## Regenerate protobuf code and assembly
	$(GO) generate $(PACKAGES)

.PHONY: checkgenerate
checkgenerate: generate ## Fail if generated files are not what the generators write
	@git diff --exit-code -- '*.pb.go' '*_amd64.s' '*_stub.go' '*.ptx' || \
		{ echo "generated files are stale: run make generate and commit"; exit 1; }

.PHONY: bench
bench: build ## The benchmarks of the main job, each against its floor
	$(BIN) bench round --ranks 1
	$(BIN) bench round --ranks 8
	$(BIN) bench decode $(MODEL_FLAGS) --ranks 8 --speculate off,eagle3,auto
