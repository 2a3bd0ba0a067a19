# What a person types: make run, make test. Everything else is below.
# What ships is built without cgo, so that one static file runs anywhere.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# WebSocket and the few JSON answers beside it are HTTP/1.1: without HTTP/2 the
# daemon is half a megabyte smaller.
TAGS     := nethttpomithttp2
LDFLAGS  := -s -w -X farhand/internal/version.version=$(VERSION)
# What isn't on the way of every frame and byte isn't inlined, which makes the daemon
# 4 % smaller.
LARGE    := audit client client/... files link relay relay/... shim stream wire
SMALL    := $(foreach p,farhand/... github.com/godbus/... github.com/pelletier/... github.com/spf13/...,-gcflags='$(p)=-l') $(foreach p,$(LARGE),-gcflags='farhand/$(p)=')
PROGRAMS := farhandd farhand farhand-relay
# The lines that go test prints for packages without tests are noise.
TESTFLAGS ?= -race -timeout 20m

.PHONY: build build-arm64 build-amd64 run test lab lab-soak image image-repro boot-test test-compile chaos mcp-test ollama ollama-test ollama-record bench lint fuzz clean

build: ## all programs for this machine, into bin/
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' $(SMALL) -o bin/ $(PROGRAMS:%=./cmd/%)

build-arm64 build-amd64: build-%: ## the same for linux/arm64, into bin/linux-arm64/, or amd64
	@mkdir -p bin/linux-$*
	CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' $(SMALL) -o bin/linux-$*/ $(PROGRAMS:%=./cmd/%)

run: build ## relay, daemon and a real session on this machine (ONCE=1: end after it)
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/internal/ ./internal/tryout
	@exec bin/internal/tryout $(if $(ONCE),--once) --bin bin

test: build ## every test, with the race detector (needs gcc)
	@command -v $${CC:-gcc} >/dev/null || { echo 'make test needs gcc for the race detector (Debian: apt-get install gcc libc6-dev); make run does not.' >&2; exit 1; }
	@mkdir -p bin/internal
	@start=$$(date +%s); CGO_ENABLED=0 $(GO) build -trimpath -o bin/internal/ github.com/nats-io/nats-server/v2 || exit 1; CGO_ENABLED=1 $(GO) test -race -run '^$$' ./... >/dev/null || exit 1; echo "compiled in $$(( $$(date +%s) - start )) s"
	@start=$$(date +%s); CGO_ENABLED=1 FARHAND_TEST_BIN=$(CURDIR)/bin FARHAND_TEST_NATS_SERVER=$(CURDIR)/bin/internal/nats-server $(GO) test $(TESTFLAGS) ./... || exit 1; echo "tests ran in $$(( $$(date +%s) - start )) s"

# RUN names suites, TEST a pattern of tests, LABFLAGS more (go run ./lab/run -h).
lab: ## the drivers against a real kernel's devices, in an emulated machine (RUN=gpio: one family)
	@mkdir -p bin/internal
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/internal/lab ./lab/run
	@exec bin/internal/lab $(if $(RUN),-run $(RUN)) $(if $(TEST),-test '$(TEST)') $(LABFLAGS)

lab-soak: ## a device is plugged in and out 1000 times while four sessions use it
	@$(MAKE) --no-print-directory lab RUN=lab/soak LABFLAGS='-soak 1000 -limit 30m -suite-limit 29m $(LABFLAGS)'

EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)
TARGET ?= pi
ARCH = $(if $(filter amd64,$(TARGET)),amd64,arm64)
image: ## the flashable image, into bin/image/ (as root on Debian; TARGET=pi, generic or amd64; SPEC=file.toml: more than the defaults)
	@$(MAKE) --no-print-directory build-$(ARCH)
	@mkdir -p bin/internal
	@CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) $(GO) build -trimpath -ldflags '-s -w' -o bin/linux-$(ARCH)/farhand-init ./image/initramfs/init
	@CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/internal/ ./cmd/farhand-image
	@exec bin/internal/farhand-image build -epoch $(EPOCH) -target $(TARGET) $(if $(SPEC),-spec '$(SPEC)') $(IMAGEFLAGS)

image-repro: ## the image twice, from the same packages: the same bytes
	@for i in 1 2; do $(MAKE) --no-print-directory image IMAGEFLAGS='-out bin/repro/'$$i' -cache bin/image/cache -version repro $(IMAGEFLAGS)' || exit 1; done
	@sha256sum bin/repro/1/*.xz bin/repro/2/*.xz
	@cmp bin/repro/1/*.xz bin/repro/2/*.xz && echo 'the same image' && rm -r bin/repro

# IMAGE names an image instead of the one that make image makes, ONLY lanes by a
# pattern (generic and amd64 are the lanes of those targets), BOOTFLAGS more (go
# run ./e2e/boot -h).
boot-test: TARGET = $(or $(filter generic amd64,$(ONLY)),pi)
boot-test: build ## the image in emulated boards: pairing, use, power cuts, watchdogs (QUICK=1: what CI runs)
	@[ -n "$(IMAGE)" ] || $(MAKE) --no-print-directory image TARGET=$(TARGET)
	@mkdir -p bin/internal
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/internal/boot-test ./e2e/boot
	@CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) $(GO) build -trimpath -ldflags '-s -w' -o bin/linux-$(ARCH)/farhand-testmodel ./e2e/boot/testmodel
	@exec bin/internal/boot-test -target $(TARGET) $(if $(QUICK),-quick) $(if $(IMAGE),-image '$(IMAGE)') $(if $(ONLY),-only '$(ONLY)') $(BOOTFLAGS)

MINUTES ?= 4
chaos: build ## links, relay and daemon go wrong for MINUTES while everything is in use (SEED repeats the steps)
	@FARHAND_TEST_BIN=$(CURDIR)/bin FARHAND_TEST_CHAOS=$$(( $(MINUTES) * 60 )) $(if $(SEED),FARHAND_TEST_SEED=$(SEED)) \
		$(GO) test -count=1 -v -run '^TestChaos$$' -timeout $$(( $(MINUTES) + 10 ))m ./e2e

# They are pinned by e2e/mcp/package-lock.json. Not npm ci: that wants packages for
# other systems, too, of which not every registry has all.
mcp-test: build ## the protocol's official clients against a relay and a simulated machine (needs npm)
	@rm -rf bin/mcp-test && mkdir -p bin/mcp-test && cp e2e/mcp/package.json e2e/mcp/package-lock.json e2e/mcp/client.mjs bin/mcp-test/
	@cd bin/mcp-test && timeout 600 npm install --ignore-scripts --no-audit --no-fund --no-save --loglevel=error
	@FARHAND_TEST_MUST=mcp-clients FARHAND_MCP_CLIENTS=$(CURDIR)/bin/mcp-test FARHAND_TEST_BIN=$(CURDIR)/bin $(GO) test -count=1 -timeout 5m -run 'TestMCPInspector|TestMCPTypeScript' ./e2e

# The version whose client package llm has. The module's zip lacks the directories
# named vendor: of three libraries two are Debian's, one has a stand-in here.
OLLAMA_VERSION = $(shell $(GO) list -m -f '{{.Version}}' github.com/ollama/ollama)
OLLAMA = bin/ollama/$(OLLAMA_VERSION)/ollama
ollama: ## a real Ollama for tests, without graphics cards, into bin/ollama/VERSION/ (once; five minutes of two cores)
	@[ -x $(OLLAMA) ] || { { command -v $${CXX:-g++} && [ -e /usr/include/nlohmann/json.hpp ] && [ -e /usr/include/stb/stb_image.h ]; } >/dev/null \
		|| { echo 'make ollama needs a C++ compiler and two libraries (Debian: apt-get install g++ nlohmann-json3-dev libstb-dev).' >&2; exit 1; }; \
		echo 'building Ollama $(OLLAMA_VERSION)'; GOBIN=$(CURDIR)/$(dir $(OLLAMA)) CGO_ENABLED=1 CGO_CPPFLAGS=-I$(CURDIR)/llm/llmtest/include \
		$(GO) install -trimpath -ldflags '-s -w -X github.com/ollama/ollama/version.Version=$(OLLAMA_VERSION:v%=%)' github.com/ollama/ollama@$(OLLAMA_VERSION); }

ollama-test: ollama ## package llm on a real Ollama, and whether that still answers as it was recorded
	@FARHAND_TEST_MUST=ollama FARHAND_TEST_OLLAMA=$(CURDIR)/$(OLLAMA) $(GO) test -count=1 -timeout 5m ./llm/llmsuite ./llm/llmtest

ollama-record: ollama ## what a real Ollama answers, into llm/llmtest/testdata
	@FARHAND_TEST_MUST=ollama FARHAND_TEST_OLLAMA=$(CURDIR)/$(OLLAMA) $(GO) test -count=1 -timeout 5m -run '^TestRealShapes$$' ./llm/llmtest -update

bench: build ## the bars: ratios against a bare limit measured in the same run
	CGO_ENABLED=0 $(GO) run ./internal/bench --bin bin

lint: ## gofmt, vet, staticcheck, import direction
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt wants:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 $(GO) vet $(PROGRAMS:%=./cmd/%)
	GOOS=darwin CGO_ENABLED=0 $(GO) vet ./cmd/farhand
	GOOS=windows CGO_ENABLED=0 $(GO) vet ./cmd/farhand
	$(GO) test ./internal/house

FUZZTIME ?= 10s
fuzz: ## each fuzzer for FUZZTIME
	@for pkg in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$pkg || exit 1; \
		done; \
	done

clean:
	rm -rf bin
