# All tasks of Crosslane; continuous integration calls `make test`.
# Needs cargo and a C compiler, Python 3.11 with venv. Nothing is installed outside this folder, except tshark
# (for one test, only as root where apt-get is available).

SEEDS ?= 1..3
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
SCENARIOS ?= leave-coverage leave-coverage-fast leave-coverage-loaded pass-by enter-coverage backup-mode sudden-loss aggregate
# The same downstream, and with replies.
BOTH_WAYS = leave-coverage-down leave-coverage-ping-pong sudden-loss-down sudden-loss-ping-pong
# Over IPv6.
IPV6 = sudden-loss-ipv6
# Networks that do not let MPTCP pass.
MIDDLEBOXES = $(addprefix middlebox/,strips-mp-join drops-mp-join strips-mp-capable drops-mp-capable)
# Without the strategies that `make e2e` accepts after a colon.
NAMES = $(foreach name,$(SCENARIOS),$(firstword $(subst :, ,$(name))))
# Scenarios of which docs/results/results.md shows distributions, simulated over 200 seeds.
DISTRIBUTIONS ?= leave-coverage leave-coverage-fast pass-by leave-coverage-loaded sudden-loss flapping
# Scenarios that `make test` drives, with one seed and one baseline, so that it ends in minutes (`make e2e`: all).
SHORT = leave-coverage:kernel,threshold sudden-loss:threshold sudden-loss-down:threshold backup-mode \
    deadline/narrow-10s-cubic tunnel/narrow-25-47 tunnel/redundant-loss:tunnel-redundant roadside/ten-200:threshold

STRATEGIES = kernel,kernel-tuned,hapanchak,threshold,adaptive
# Plain TCP in addition, where a single path can carry the drive.
ALONE_leave-coverage-loaded = ,lte-alone
ALONE_aggregate = ,single

# The cases with deadlines, and the strategies that `deadline` is compared with.
DEADLINES ?= $(notdir $(basename $(wildcard scenarios/deadline/*.toml)))
OTHERS = deadline-mptcp,kernel,kernel-tuned,single,mp-dpa-05,mp-dpa-06,mp-dpa-07,mp-dpa-08,mp-dpa-09,mp-dpa,mp-dpa-11,mp-dpa-13,mp-dpa-15,mp-dpa-19
DRIVEN = kernel,kernel-tuned,mp-dpa,deadline-mptcp,deadline

# Through the tunnel: bulk by TCP (with both congestion controls), and the rest, mostly datagrams.
TUNNELS_BULK ?= equal-60-60 narrow-25-47 wide-246-469 unequal-20-80 spread-100 far-20-100 unshaped
TUNNELS_OTHER ?= throttled udp-stream redundant-loss udp-leave-coverage udp-sudden-loss
TUNNELED_BULK = single,kernel,kernel-tuned,tunnel,tunnel-plain
TUNNELED_TCP = $(TUNNELED_BULK),tunnel-redundant
TUNNELED_UDP = single,tunnel,tunnel-plain,tunnel-redundant
# Third-party tunnels in addition, as far as they are installed.
comma := ,
WIREGUARD := $(shell command -v wireguard-go)
BESIDE_unshaped = ,vxlan$(if $(WIREGUARD),$(comma)wireguard-go)
BESIDE_far-20-100 = ,single-far
# Seeds of the drives, where ten are too few: the results of `kernel` and `kernel-tuned` there have two modes.
DRIVEN_enter-coverage = 1..15
DRIVEN_pass-by = 1..15
DRIVEN_leave-coverage-loaded = 1..15
# And of its simulated side, where 20 are.
SIMULATED_pass-by = 1..100

CROSSLANE = target/release/crosslane
LAB = .venv/bin/crosslane-lab
say = @printf '\n\033[1m== %s\033[0m\n' '$(1)'

export CARGO_TERM_COLOR ?= auto
# What the program states in its version, and in the runs that it makes.
export CROSSLANE_COMMIT := $(shell git describe --always --abbrev=8 --dirty=.dirty --exclude='*' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help build lab demo test lint e2e e2e-openflow e2e-gre e2e-deb e2e-guides e2e-container deb deb-arm64 wheel hardship soak results nota szilagyi torrinhas roadside tunnel conformance conformance-simulated conformance-check deadlines bpf bench clean tools tshark
.NOTPARALLEL:

help: ## list the targets
	@awk -F ' *## *' '/^[a-z0-9-]+:.*##/ { sub(/:.*/, "", $$1); printf "make %-15s%s\n", $$1, $$2 }' Makefile

demo: build lab ## a drive out of roadside coverage, simulated (under a minute) and on this kernel (3 minutes more), with a report
	@e2e/demo.sh

test: lint tshark ## check everything: style, types, unit and property tests, hardships, simulations, short drives (about 15 minutes on two cores after the build)
	$(call say,building the tests)
	cargo fetch --locked --target $$(rustc -vV | sed -n 's/^host: //p')
	cargo test --release --locked --workspace --no-run
	$(call say,testing the crates and the lab)
	@e2e/tests.sh
	@$(MAKE) --no-print-directory e2e BUILT=yes SEEDS=1 SCENARIOS='$(SHORT)'

lint: tools lab ## format, clippy, ruff, pyright, and core without std
	$(call say,checking style and types)
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
	.venv/bin/ruff check lab
	.venv/bin/ruff format --check lab
	.venv/bin/pyright --project lab --pythonpath .venv/bin/python
	crates/core/bare-metal.sh

e2e: DRIVES = $(if $(filter command,$(word 1,$(origin SCENARIOS))),$(SCENARIOS),$(SCENARIOS) $(BOTH_WAYS) $(IPV6) roadside/ten-200 $(MIDDLEBOXES))
e2e: build ## drive the scenarios and check the results against their expectations (SEEDS=1..3 SCENARIOS="…")
	$(call say,driving $(DRIVES) (seeds $(SEEDS)))
	@SEEDS='$(SEEDS)' e2e/drives.sh $(DRIVES)

e2e-openflow: lab ## lead home addresses by OpenFlow through a real Open vSwitch (some minutes; as root)
	@e2e/openflow.sh

e2e-gre: tools lab ## GRE tunnels to roadside units in an emulated machine whose kernel has GRE (downloads 27 MB once; some minutes)
	@e2e/gre.sh

deb: build ## a Debian package, target/deb
	$(call say,packaging)
	@packaging/deb.sh $(CROSSLANE)

e2e-deb: build ## install, upgrade and purge the package in a booted Debian (loads 150 MB once; some minutes; as root)
	@packaging/try-deb.sh $(CROSSLANE)

deb-arm64: build ## a Debian package for arm64, cross-built, and tried under qemu as far as that goes
	$(call say,building for arm64)
	@packaging/arm64.sh

wheel: build lab ## the lab with the program inside, target/wheel, tried in a new Python environment (loads its dependencies)
	@packaging/wheel.sh $(CROSSLANE)

e2e-container: deb ## build both images of packaging/Containerfile with buildah, and run them (as root)
	@packaging/try-container.sh

e2e-guides: build lab ## execute the commands of every guide and compare their outputs (as root; under two minutes; SLOW=yes: half an hour)
	@SLOW='$(SLOW)' e2e/guides.sh

hardship: tools ## hardships on real namespaces, compared with the in-kernel path manager (docs/design/hardship.md; SEEDS=1..100; default: the short form)
	$(call say,hardships)
	cargo test --release --locked -p crosslane --test hardship -- --out $(CURDIR)/runs/hardship $(if $(filter file,$(origin SEEDS)),,--seeds $(SEEDS))

soak: ## an agent whose links and connections come and go for an hour: neither memory nor descriptors grow (MINUTES=60)
	$(call say,soaking for $(or $(MINUTES),60) minutes)
	MINUTES=$(or $(MINUTES),60) cargo test --release --locked -p crosslane --test main soak:: -- --nocapture

results: build lab $(NAMES:%=runs/kernel/%) $(DISTRIBUTIONS:%=runs/distributions/%) ## measure every strategy in every scenario, 10 seeds each or 15, into docs/results/results.md (hours; with conformance in one command the drives are the same)
	$(LAB) results $(NAMES:%=runs/kernel/%) $(DISTRIBUTIONS:%=runs/distributions/%) --out docs/results/results.md

nota: build lab ## simulate the measurements of the thesis on MP-DPA, into docs/results/nota.md (some minutes)
	$(call say,simulating the thesis on MP-DPA)
	$(LAB) reproduce nota --program $(CROSSLANE) --out docs/results/nota.md

szilagyi: build lab ## drive the measurements of the paper on MPT-GRE, into docs/results/szilagyi.md (over an hour; QUICK=1: five runs of 10 s)
	$(call say,driving the paper on MPT-GRE)
	$(LAB) reproduce szilagyi --program $(CROSSLANE) $(if $(QUICK),--quick) --out docs/results/szilagyi.md

torrinhas: build lab ## the paper on MPTCP over one radio, simulated and driven, into docs/results/torrinhas.md (two hours; QUICK=1: simulated only)
	$(call say,simulating and driving the paper on MPTCP over one radio)
	$(if $(QUICK),,$(CROSSLANE) cc load)
	$(LAB) reproduce torrinhas --program $(CROSSLANE) $(if $(QUICK),--quick) --out docs/results/torrinhas.md

tunnel: build lab ## measure traffic through the tunnel, 5 seeds, into docs/results/tunnel-measured.md (two hours)
	@set -e; for name in $(TUNNELS_BULK); do $(MAKE) --no-print-directory runs/tunnel/$$name/cubic runs/tunnel/$$name/bbr; done
	@set -e; for name in $(TUNNELS_OTHER); do $(MAKE) --no-print-directory runs/tunnel/$$name; done
	$(LAB) tunnel $(foreach name,$(TUNNELS_BULK),runs/tunnel/$(name)/cubic runs/tunnel/$(name)/bbr) \
	    $(TUNNELS_OTHER:%=runs/tunnel/%) --out docs/results/tunnel-measured.md

# Several roadside units over one radio. The sums of fading units in each 100 ms need records.
ROADSIDE = fading ten-30 ten-100 ten-200 platoon three-lte unit-dies unit-lies attacker
ROADSIDE_DRIVEN = $(if $(QUICK),,ten-100 ten-200 three-lte unit-dies unit-lies attacker)
roadside: build lab ## simulate several roadside units over one radio, 50 seeds, and drive some, 5 seeds, into docs/results/roadside.md (hours; QUICK=1: simulated only)
	@set -e; for name in $(ROADSIDE) $(ROADSIDE_DRIVEN:%=kernel/%); do $(MAKE) --no-print-directory runs/roadside/$$name; done
	@set -e; for number in 1 2; do $(CROSSLANE) simulate scenarios/torrinhas/scenario-$$number.toml \
	    --strategy $(ROADSIDE_STRATEGIES) --seed 1..50 --records all --out runs/roadside/torrinhas-$$number; done
	$(LAB) roadside $(patsubst %,runs/roadside/%,$(ROADSIDE) torrinhas-1 torrinhas-2 $(ROADSIDE_DRIVEN:%=kernel/%)) --out docs/results/roadside.md

ROADSIDE_STRATEGIES = kernel,kernel-tuned,hapanchak,threshold,adaptive,torrinhas,oracle
runs/roadside/kernel/%: FORCE
	$(call say,driving roadside/$*)
	$(CROSSLANE) drive scenarios/roadside/$*.toml --strategy kernel,kernel-tuned,threshold --seed 1..5 --out $@

runs/roadside/%: FORCE
	$(call say,simulating roadside/$*)
	$(CROSSLANE) simulate scenarios/roadside/$*.toml --strategy $(ROADSIDE_STRATEGIES) --seed 1..50 --records $(if $(filter fading,$*),all,none) --out $@
	@rm -f $@/runs/*/packets.* $@/runs/*/*/packets.*

runs/tunnel/%/cubic: FORCE
	$(call say,measuring tunnel/$* with cubic)
	@$(if $(WIREGUARD)$(filter-out unshaped,$*),:,echo 'wireguard-go is not installed (apt-get install wireguard-go): measured without it')
	$(CROSSLANE) drive scenarios/tunnel/$*.toml --strategy $(TUNNELED_BULK)$(BESIDE_$*) --seed 1..5 --out $@

runs/tunnel/%/bbr: FORCE
	$(call say,measuring tunnel/$* with bbr)
	@$(if $(WIREGUARD)$(filter-out unshaped,$*),:,echo 'wireguard-go is not installed (apt-get install wireguard-go): measured without it')
	@mkdir -p runs/tunnel/$* && sed 's/^duration_s/congestion = "bbr"\n&/' scenarios/tunnel/$*.toml > runs/tunnel/$*/bbr.toml
	$(CROSSLANE) drive runs/tunnel/$*/bbr.toml --strategy $(TUNNELED_BULK)$(BESIDE_$*) --seed 1..5 --out $@

runs/tunnel/%: FORCE
	$(call say,measuring tunnel/$*)
	$(CROSSLANE) drive scenarios/tunnel/$*.toml --strategy $(if $(filter throttled,$*),$(TUNNELED_TCP),$(TUNNELED_UDP)) --seed 1..5 --out $@

runs/kernel/%: FORCE
	$(call say,driving $* on the kernel)
	$(CROSSLANE) drive scenarios/$*.toml --strategy $(STRATEGIES)$(ALONE_$*) --seed $(or $(DRIVEN_$*),1..10) --out $@

runs/distributions/%: FORCE
	$(call say,simulating $* over 200 seeds)
	$(CROSSLANE) simulate scenarios/$*.toml --strategy $(STRATEGIES),oracle$(ALONE_$*) --seed 1..200 --records none --out $@

deadlines: build lab ## measure the cases with deadlines, simulated and driven, into docs/results/deadlines-measured.md (over an hour)
	@set -e; for name in $(DEADLINES); do $(MAKE) --no-print-directory runs/deadlines/$$name; done
	$(LAB) deadlines $(foreach name,$(DEADLINES),$(addprefix runs/deadlines/$(name)/,simulated compared driven)) \
	    --out docs/results/deadlines-measured.md

runs/deadlines/%: FORCE
	$(call say,measuring deadline/$*)
	$(CROSSLANE) simulate scenarios/deadline/$*.toml --strategy deadline --seed 1..200 --records none --out $@/simulated
	$(CROSSLANE) simulate scenarios/deadline/$*.toml --strategy $(OTHERS) --seed 1..20 --records none --out $@/compared
	$(CROSSLANE) drive scenarios/deadline/$*.toml --strategy $(DRIVEN) --seed 1..5 --out $@/driven

conformance: build lab $(NAMES:%=runs/kernel/%) conformance-simulated ## measure the agreement of the simulator with the kernel, into docs/results/conformance.md (hours)
	$(LAB) conformance $(NAMES:%=runs/kernel/%) $(NAMES:%=runs/conformance/simulated/%) \
	    --golden lab/tests/golden/conformance.csv --out docs/results/conformance.md

conformance-check: build lab conformance-simulated
	$(call say,comparing the simulator with stored results of the kernel)
	$(LAB) conformance $(NAMES:%=runs/conformance/simulated/%) --golden lab/tests/golden/conformance.csv --check

conformance-simulated: build
	@set -e; for name in $(NAMES); do $(MAKE) --no-print-directory runs/conformance/simulated/$$name; done

runs/conformance/simulated/%: FORCE
	@$(CROSSLANE) simulate scenarios/$*.toml --strategy $(STRATEGIES)$(ALONE_$*) --seed $(or $(SIMULATED_$*),1..20) --records none --out $@ > /dev/null

FORCE:

# Needs clang and llvm-strip (14: the shipped object; another version makes other bytes that do the same).
bpf: ## build bpf/lia.bpf.o, the coupled congestion control, where clang is
	@command -v clang >/dev/null && command -v llvm-strip >/dev/null || \
	    { echo 'make: clang or llvm-strip is missing; on Debian: apt-get install clang llvm'; exit 2; }
	cd bpf && clang -O2 -g -target bpf -mcpu=v3 -Wall -Wextra -Werror -ffile-compilation-dir=. -c lia.bpf.c -o lia.bpf.o
	cd bpf && llvm-strip -g lia.bpf.o && sha256sum lia.bpf.c lia.bpf.o > SHA256SUMS

bench: tools ## measure the link emulator, the path manager and the simulator
	cargo bench --locked -p crosslane

# BUILT=yes: the program that the tests were built with. It must not be replaced while tests run.
build: tools ## the program, target/release/crosslane
	$(if $(BUILT),,$(call say,building (some minutes the first time)))
	$(if $(BUILT),,cargo build --release --locked -p crosslane)

lab: .venv/ready ## the Python environment, .venv
.venv/ready: lab/requirements.lock lab/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'make: $(PYTHON) is missing or older than 3.11; install Python 3.11 or set its path: make PYTHON=/path/to/python3.11'; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	    { echo 'make: $(PYTHON) lacks its venv module; install it, on Debian: apt-get install python3-venv'; exit 2; }
	$(call say,making the Python environment .venv)
	$(PYTHON) -m venv --clear .venv
	.venv/bin/pip install --disable-pip-version-check --require-hashes -r lab/requirements.lock
	.venv/bin/pip install --quiet --disable-pip-version-check --no-deps -e lab
	@touch $@

clean: ## remove build output, and the runs of demo and tests (measured results stay)
	rm -rf target .venv runs/demo runs/e2e runs/conformance/simulated

tools:
	@command -v cargo >/dev/null || { echo 'make: cargo is missing; install Rust 1.88 or newer (https://rustup.rs)'; exit 2; }
	@cargo --version | awk '{ split($$2, v, "."); exit v[1] == 1 && v[2] < 88 }' || \
	    { echo "make: $$(cargo --version) is too old; install Rust 1.88 or newer (https://rustup.rs)"; exit 2; }
	@command -v cc >/dev/null || { echo 'make: no C compiler (cc), which cargo needs as linker; on Debian: apt-get install gcc libc6-dev'; exit 2; }

tshark:
	@if ! command -v tshark >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    printf '\n== installing tshark, for the test that decodes our packets with it\n'; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends tshark; } \
	        >/dev/null 2>&1 || echo 'tshark could not be installed; its test will report NOT RUN'; \
	fi
