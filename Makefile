# The two commands a newcomer needs are `make run` and `make test`; `make help` lists the rest.
GO         ?= go
CACHE      := $(CURDIR)/.cache
TOOLS      := $(CACHE)/bin
VARVE      := $(CURDIR)/bin/varve
# Servers and linters that are run beside varve, never linked into it.
VERSITYGW_VERSION   := v1.8.0
STATICCHECK_VERSION := v0.8.2
PROTOC_GEN_VERSION  := v1.36.11
FUZZTIME   ?= 20s
export VARVE_TOOLS_DIR := $(TOOLS)

.PHONY: help run dev-s3 demo build test lint fuzz bench compat compat-chains edge-peer import-peer proto tools docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the static binary bin/varve
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o $(VARVE) ./cmd/varve

run: build ## build and start a complete node on 127.0.0.1:9092
	@$(VARVE) server

dev-s3: build tools ## build and start a node that settles into an S3 server on this machine; no Docker
	@localstack/dev-s3.sh $(DEVS3FLAGS)

demo: build ## load Go's own sources, settle them into the tier, read all back and compare
	@$(VARVE) demo

tools: $(TOOLS)/versitygw ## build the S3 server that the tests start

$(TOOLS)/versitygw:
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) $(GO) install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION)

$(TOOLS)/staticcheck:
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) $(GO) install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

test: tools ## every test that needs only Go (RACE=1 adds the race detector, which needs a C compiler)
	$(GO) test $(if $(RACE),-race) $(if $(TAGS),-tags=$(TAGS)) -timeout 12m $(TESTFLAGS) ./...

lint: $(TOOLS)/staticcheck ## gofmt, go vet, staticcheck
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "gofmt would change: $$bad"; exit 1; }
	$(GO) vet ./...
	$(TOOLS)/staticcheck ./...

fuzz: ## run each fuzz target for FUZZTIME
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "== $$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$pkg || exit 1; \
	  done; \
	done

bench: build ## what a byte and a request cost, beside bare loops (BENCHFLAGS=-peer: and beside Apache Kafka)
	$(GO) run ./tests/bench -varve $(VARVE) $(BENCHFLAGS)

# A JDK, Maven, Node.js and Python, and the registries that their clients come from; what is fetched stays in .cache/compat.
COMPATFLAGS ?= -peer
compat: ## the table client x case on varve and on Apache Kafka beside it (COMPATFLAGS='-fast' for varve's fast half)
	$(GO) run ./tests/compat/suite $(COMPATFLAGS)

compat-chains: ## franz-go's consumer group chains, the broker restarted in the middle of each (CHAINSFLAGS='-rounds 2')
	$(GO) run ./tests/compat/chains $(CHAINSFLAGS)

edge-peer: ## ask Apache Kafka the list of edge calls and compare with testdata/edge.golden (EDGEFLAGS=-rewrite writes its answers)
	$(GO) run ./tests/compat/edge/peer $(EDGEFLAGS)

import-peer: ## import a log directory that Apache Kafka wrote, and read it from both
	$(GO) test -tags kafka -count=1 -timeout 20m -v ./tests/imports

proto: ## regenerate the protobuf code (needs protoc)
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_VERSION)
	for f in $$(git ls-files '*.proto'); do \
	  PATH=$(TOOLS):$$PATH protoc --go_out=. --go_opt=paths=source_relative $$f; \
	done

docs: build ## write the configuration reference from the table in code
	$(VARVE) config --markdown > docs/configuration.md

clean: ## remove what make built
	rm -rf bin $(CACHE)
