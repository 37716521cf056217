# Holdfast. Meson and Ninja do the work, in build*/; this file only knows what people want of them.
#
#     make try      a first minute with it, from nothing
#     make cluster  three servers to play with
#     make check    all tests, from nothing
#     make help     the rest

PREFIX ?= /usr/local
DESTDIR ?=
# What installs packages. `make SETUP=: check` leaves that to you.
SETUP ?= tools/setup
# Extra arguments for `meson setup`, for instance CONFIGURE=-Dbuildtype=release
CONFIGURE ?=

configure = tools/configure
ninja = tools/build

.PHONY: all try cluster check built-check page static dist deb check-packages install lint amd64 bench bench-peers asan built-asan tsan built-tsan valgrind soak-race soak-kill soak-redis soak-server soak-fuzz soak-raft explore sim mutants \
	soak-cluster-kills soak-cluster-pauses soak-cluster-partitions soak-cluster-leases soak-cluster-newcomer \
	soak-cluster-members soak-cluster-conformance soak-etcd soak-zookeeper soak-postgres soak-client soak-faults soak-guards soak-amd64 soak-lint soak-power chaos clean help

# Warnings are errors in the tests' builds, and only there: a newer compiler may see more.
all:
	@$(configure) build -Dwerror=false --prefix=$(PREFIX) $(CONFIGURE)
	@$(ninja) build

try:
	@$(SETUP) try
	@$(MAKE) --no-print-directory all
	@tools/try.sh build

# CLUSTER_PORT=N: at the ports from N on.
cluster:
	@$(SETUP) try
	@$(MAKE) --no-print-directory all
	@CLUSTER_PORT='$(CLUSTER_PORT)' tools/cluster build

# What the tests need, without the tests: .ci/run builds the next while the last ones wait.
built-check:
	@$(SETUP) check
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check

check: built-check
	@tools/check build-check

# The page in a real browser, and what is given to Prometheus. Chromium is large: make check leaves them out where it is not there.
page:
	@$(SETUP) page
	@$(MAKE) --no-print-directory built-check
	@tools/check --suite page build-check

# The command as one file, which needs nothing beside it: for containers. Without modules, and so without TLS.
static:
	@$(SETUP) build
	@$(configure) build-static -Dstatic=true -Dwerror=false -Dbuildtype=release $(CONFIGURE)
	@$(ninja) build-static src/cli/holdfast
	@strip -o build-static/holdfast build-static/src/cli/holdfast
	@stat --format='%n: %s bytes' build-static/holdfast

dist:
	@tools/dist

# SUFFIX=+1: as another version.
deb:
	@$(SETUP) deb
	@tools/deb $(if $(SUFFIX),--suffix '$(SUFFIX)')

# As root, and over the network that apt uses here. SUITES=trixie: only that one. Half an hour. Of several Pythons, that of the packages.
check-packages: all static
	@$(SETUP) packages
	@HF_PACKAGES=1 HF_SUITES='$(SUITES)' PYTHONDONTWRITEBYTECODE=1 HOLDFAST_BIN='$(CURDIR)/build/src/cli/holdfast' \
		HF_SERVER='$(CURDIR)/build/src/server/holdfastd' HF_UNIT='$(CURDIR)/build/src/server/holdfastd.service' \
		/usr/bin/python3 -m pytest -q -rs -p no:cacheprovider tests/packages

install: all
	@into='$(DESTDIR)'; case $$into in '' | /*) ;; *) into='$(CURDIR)'/$$into ;; esac; \
	DESTDIR=$$into meson install -C build --no-rebuild --quiet 2>build/install.errors && echo "installed under $$into$(PREFIX)" || \
	{ echo "make install: $$(tail -n 1 build/install.errors) (as root, or with a PREFIX or DESTDIR of your own)" >&2; exit 1; }

lint:
	@$(SETUP) lint
	@tools/lint

amd64:
	@$(SETUP) amd64
	@tools/amd64

# With the analyzer as far into each function as it goes by itself: three quarters of an hour.
soak-lint:
	@$(SETUP) lint
	@HF_SOAK=1 tools/lint

soak-amd64:
	@$(SETUP) amd64
	@HF_SOAK=1 tools/amd64

bench:
	@$(SETUP) check
	@$(configure) build-bench -Dtests=true -Dwerror=false -Dbuildtype=release $(CONFIGURE)
	@$(ninja) build-bench
	@rm -rf build-bench/play && mkdir build-bench/play
	@failed=0; \
	build-bench/bench/bench-file '$(CURDIR)/build-bench/play' build-bench/src/cli/holdfast || failed=1; \
	if [ -x build-bench/bench/bench-fence ]; then \
		HOLDFAST_MODULE_DIR='$(CURDIR)/build-bench/src/guard' \
			build-bench/bench/bench-fence '$(CURDIR)/build-bench/play' || failed=1; \
	else \
		echo 'bench-fence: left out (needs LMDB)'; \
	fi; \
	bench/guard_speed.py build-bench/src/cli/holdfast || failed=1; \
	if [ -x build-bench/bench/bench-redis ]; then \
		HF_RELAY='$(CURDIR)/build-bench/tests/lib/servers/hf-relay' HOLDFAST_TEST_DIR='$(CURDIR)/build-bench/play' \
			build-bench/bench/bench-redis '$(CURDIR)/build-bench/play' build-bench/src/cli/holdfast || failed=1; \
	else \
		echo 'bench-redis: left out (needs hiredis and redis-server)'; \
	fi; \
	if [ -x build-bench/bench/bench-etcd ]; then \
		HOLDFAST_MODULE_DIR='$(CURDIR)/build-bench/src/engines' HOLDFAST_TEST_DIR='$(CURDIR)/build-bench/play' \
			build-bench/bench/bench-etcd build-bench/src/cli/holdfast || failed=1; \
	else \
		echo 'bench-etcd: left out (needs libcurl, jansson and etcd)'; \
	fi; \
	if [ -x build-bench/bench/bench-zookeeper ]; then \
		HOLDFAST_MODULE_DIR='$(CURDIR)/build-bench/src/engines' HOLDFAST_TEST_DIR='$(CURDIR)/build-bench/play' \
			build-bench/bench/bench-zookeeper build-bench/src/cli/holdfast || failed=1; \
	else \
		echo 'bench-zookeeper: left out (needs libzookeeper_mt and ZooKeeper)'; \
	fi; \
	if [ -x build-bench/bench/bench-postgres ]; then \
		HOLDFAST_MODULE_DIR='$(CURDIR)/build-bench/src/engines' HOLDFAST_TEST_DIR='$(CURDIR)/build-bench/play' \
			build-bench/bench/bench-postgres build-bench/src/cli/holdfast || failed=1; \
	else \
		echo 'bench-postgres: left out (needs libpq and PostgreSQL)'; \
	fi; \
	if [ -x build-bench/bench/bench-renew ]; then \
		HF_HOLDFASTD='$(CURDIR)/build-bench/src/server/holdfastd' HOLDFAST_TEST_DIR='$(CURDIR)/build-bench/play' \
			build-bench/bench/bench-renew || failed=1; \
	fi; \
	if [ -x build-bench/src/server/holdfastd ]; then \
		bench/server_speed.py build-bench/src/server/holdfastd build-bench/play || failed=1; \
		bench/server_scale.py build-bench/src/server/holdfastd build-bench/play || failed=1; \
		bench/cluster_speed.py build-bench/src/server/holdfastd build-bench/play || failed=1; \
		[ ! -e build-bench/src/admin/holdfast-http.so ] || HOLDFAST_MODULE_DIR='$(CURDIR)/build-bench/src/admin' \
			bench/server_admin.py build-bench/src/server/holdfastd build-bench/play || failed=1; \
	else \
		echo 'server_speed, server_scale, cluster_speed: left out (the server is off)'; \
	fi; \
	rm -rf build-bench/play; \
	exit $$failed

# Half an hour. QUICK=1: everything once and short, in a minute, to see whether it works; its figures mean nothing, and docs/benchmarks.md is not touched.
# JSON=FILE: all that was measured, an object on each line. PEERS='...': more arguments of bench/peers/peers.py. Of several Pythons, that of the packages.
peers_modules = build-bench/node/node_modules
bench-peers:
	@$(SETUP) check
	@$(configure) build-bench -Dtests=true -Dwerror=false -Dbuildtype=release $(CONFIGURE)
	@$(ninja) build-bench
	@if [ ! -d $(peers_modules)/redlock ] && command -v npm >/dev/null; then \
		mkdir -p build-bench/node; \
		npm install --prefix build-bench/node --no-package-lock --no-audit --no-fund --loglevel=error redlock@5.0.0-beta.2 ioredis@5 \
			>/dev/null </dev/null || echo 'redlock and ioredis could not be installed from npm: they will be left out'; \
	fi
	@PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 bench/peers/peers.py build-bench --modules $(peers_modules) \
		$(if $(QUICK),--quick,--page docs/benchmarks.md) $(if $(JSON),--json '$(JSON)') $(PEERS)

# The sanitizers and valgrind run the tests that are written in C. With -O2, compiling for a sanitizer takes twice as long, and hardly any test is
# faster. With -O1 the compiler warns of what cannot be.
built-asan:
	@$(SETUP) check
	@$(configure) build-asan -Dtests=true -Doptimization=1 -Dwerror=false -Db_sanitize=address,undefined -Db_lundef=false $(CONFIGURE)
	@$(ninja) build-asan

asan: built-asan
	@tools/check --sanitizer build-asan

built-tsan:
	@$(SETUP) check
	@$(configure) build-tsan -Dtests=true -Doptimization=1 -Dwerror=false -Db_sanitize=thread -Db_lundef=false $(CONFIGURE)
	@$(ninja) build-tsan

tsan: built-tsan
	@tools/check --sanitizer build-tsan

valgrind:
	@$(SETUP) valgrind
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check
	@tools/check --valgrind build-check

# The long forms of what `make check` runs in short.
soak-race: cases = test_race and not kill
soak-kill: cases = kill
soak-redis: cases = crashes_and_restarts or eight_processes
soak-server: cases = test_kill_under_load or test_kill_while_it_starts or test_a_crowd_never_holds_together
soak-race soak-kill soak-redis soak-server:
	@$(SETUP) check
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check
	@HF_SOAK=1 tools/check --pytest '$(cases)' build-check

soak-cluster-kills soak-cluster-pauses soak-cluster-partitions soak-cluster-leases soak-cluster-newcomer:
	@$(SETUP) check
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check
	@HF_SOAK=1 meson test -C build-check --no-rebuild --verbose --timeout-multiplier 10 $(@:soak-%=%)

# HF_SEED=N: chooses as a run did that printed N.
soak-cluster-members:
	@$(SETUP) check
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check
	@HF_SOAK=1 meson test -C build-check --no-rebuild --verbose --timeout-multiplier 10 cluster-campaign-members

# MINUTES=N: for so long; HF_SEED=N: draws as a run did that printed N; NODES=3,5: clusters of so many, in turn. ON=etcd, zookeeper, postgres or
# redis: that store instead, under a smaller nemesis.
chaos:
	@$(SETUP) check
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check
	@MINUTES='$(MINUTES)' NODES='$(NODES)' ON='$(ON)' $(ninja) build-check chaos

# Faults come at random: three times is more than one.
soak-cluster-conformance:
	@$(SETUP) check
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check
	@HF_SOAK=1 meson test -C build-check --no-rebuild --num-processes 1 --repeat 3 --print-errorlogs \
		conformance-holdfast-cluster-killed conformance-holdfast-cluster-paused

# The same on etcd, and 500 rounds of ours beside etcdctl.
soak-etcd:
	@$(SETUP) check
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check
	@HF_SOAK=1 meson test -C build-check --no-rebuild --num-processes 1 --timeout-multiplier 4 --print-errorlogs \
		conformance-etcd-killed conformance-etcd-paused etcd-interop

# The suite in full while ZooKeeper's servers are killed and paused, and 8 and 8 processes beside kazoo and Curator.
soak-zookeeper:
	@$(SETUP) check
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check
	@HF_SOAK=1 meson test -C build-check --no-rebuild --num-processes 1 --timeout-multiplier 3 --print-errorlogs \
		conformance-zookeeper-killed conformance-zookeeper-paused zookeeper_others

# PostgreSQL killed under load 50 times, and the suite while it is killed and its connections are ended; then all of its C tests under both
# sanitizers.
soak-postgres: built-asan built-tsan
	@$(SETUP) check
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check
	@HF_SOAK=1 meson test -C build-check --no-rebuild --num-processes 1 --timeout-multiplier 4 --print-errorlogs \
		postgres-crash stress-postgres conformance-postgres-killed
	@HF_SOAK=1 tools/check --sanitizer --suite postgres build-asan
	@HF_SOAK=1 tools/check --sanitizer --suite postgres build-tsan

# Under both sanitizers, the stores side by side. HF_SEED=N: chooses as a run did that printed N.
soak-client: built-asan built-tsan
	@HF_SOAK=1 tools/check --sanitizer --suite stress build-asan
	@HF_SOAK=1 tools/check --sanitizer --suite stress build-tsan

# Each allocation and system call of a scenario fails once, in every way that it can.
soak-faults:
	@$(SETUP) check
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check
	@HF_SOAK=1 meson test -C build-check --no-rebuild --num-processes 2 --verbose --timeout-multiplier 5 --suite fail-once

soak-raft:
	@$(SETUP) check
	@$(MAKE) --no-print-directory built-check
	@HF_SOAK=1 build-check/tests/unit/raft/test-raft-worlds

# All that is in the suite 'power'.
soak-power:
	@$(SETUP) check
	@$(MAKE) --no-print-directory built-check
	@HF_SOAK=1 meson test -C build-check --no-rebuild --verbose --num-processes 1 --timeout-multiplier 20 --suite power

# Consensus, then the lock table. RUN=NAME: only that one; STATES=N: so many states. tests/unit/raft/explore_runs.c has the runs of the one, and
# tests/unit/core/explore_runs.c those of the other.
explore:
	@$(SETUP) check
	@$(MAKE) --no-print-directory built-check
	@found=; failed=; for explorer in raft/test-raft-explore core/test-core-explore; do \
	    [ -z "$(RUN)" ] || build-check/tests/unit/$$explorer --list | grep -qxF -e "$(RUN)" || continue; \
	    found=1; \
	    HF_SOAK=1 build-check/tests/unit/$$explorer $(RUN) $(STATES) || failed=1; \
	done; \
	[ "$$found" ] || echo "there is no such run: $(RUN)"; \
	[ "$$found" ] && [ ! "$$failed" ]

# SEEDS=N: so many; SEED=N: from there on; SWITCH=NAME: with a known fault put back; AGAIN=1: each twice, with the same trace; JOBS=N: processes; FAST=1: a build of its own, for campaigns. `build-check/sim/holdfast-sim --seed N --trace` shows one.
sim:
	@$(SETUP) check
ifdef FAST
	@tools/sim_fast build-sim $(CONFIGURE)
else
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check sim/holdfast-sim
endif
	@$(if $(FAST),build-sim,build-check)/sim/holdfast-sim --seed $(or $(SEED),1) --seeds $(or $(SEEDS),1000) --jobs $(or $(JOBS),2) $(if $(SWITCH),--switch $(SWITCH)) $(if $(AGAIN),--again)

# ONLY=NAME,NAME: only these of src/base/switches.def. HOLDFAST_MUTANT=NAME switches one on for any program of that build.
mutants:
	@$(SETUP) check
	@$(configure) build-mutants -Dtests=true -Dmutants=true $(CONFIGURE)
	@$(ninja) build-mutants
	@tools/mutants $(if $(ONLY),--only $(ONLY)) build-mutants

# All that is in the suite 'guard'.
soak-guards:
	@$(SETUP) check
	@$(configure) build-check -Dtests=true $(CONFIGURE)
	@$(ninja) build-check
	@HF_SOAK=1 meson test -C build-check --no-rebuild --verbose --timeout-multiplier 10 --suite guard

# TARGET=NAME: only that one of tests/unit/fuzz. SECONDS=N: so long for each.
soak-fuzz:
	@$(SETUP) fuzz
	@tools/fuzz --seconds $(or $(SECONDS),600) $(TARGET)

clean:
	@rm -rf build build-*

help:
	@echo 'make             builds into build/'
	@echo 'make try         installs what building needs, builds, shows a first minute'
	@echo 'make cluster     builds, and starts three servers to play with; CLUSTER_PORT='
	@echo 'make check       installs what the tests need, builds, runs all tests'
	@echo 'make page        installs a browser, and tests what operators see with it'
	@echo 'make install     PREFIX=$(PREFIX), DESTDIR='
	@echo 'make lint        formatting, clang-tidy, cppcheck, man pages, scripts, rooms'
	@echo 'make static      the command as one file, for containers: build-static/holdfast'
	@echo 'make dist        the release archive of the last commit, in build-dist/'
	@echo 'make deb         packages for Debian, in build-deb/; SUFFIX=+1: as another version'
	@echo 'make check-packages  builds and uses all of these, on Debian 12 and 13 made for it'
	@echo 'make bench       the benchmarks'
	@echo 'make bench-peers Redis, Redlock, ZooKeeper, etcd, PostgreSQL, flock and Holdfast in one run, half an hour; writes docs/benchmarks.md; QUICK=1, JSON='
	@echo 'make amd64       builds for amd64 elsewhere, and runs what an emulator can'
	@echo 'make asan        the C tests with the address and undefined-behaviour sanitizers'
	@echo 'make tsan        the C tests with the thread sanitizer'
	@echo 'make valgrind    the C tests under valgrind'
	@echo 'make soak-race   many processes race for one lock, in full'
	@echo 'make soak-kill   holders are killed over and over, in full'
	@echo 'make soak-redis  a Redis killed and restarted under load, and a race on Redlock, in full'
	@echo 'make soak-server holdfastd killed under load, in full'
	@echo 'make soak-cluster-kills, -pauses, -partitions, -leases, -newcomer'
	@echo '                 leaders killed, stopped, cut off, changed all the time; a node that joins a million locks'
	@echo 'make soak-cluster-members'
	@echo '                 members added, removed, killed, paused and restarted at random; HF_SEED= repeats one'
	@echo 'make chaos       clusters of three and five nodes under load, and everything goes wrong, several things at once; MINUTES=, HF_SEED=, NODES=, ON='
	@echo 'make soak-cluster-conformance'
	@echo '                 the conformance suite while the leaders of clusters are killed and paused, in full'
	@echo 'make soak-etcd   the conformance suite while nodes of etcd are killed and paused, in full; etcdctl lock beside ours'
	@echo 'make soak-zookeeper'
	@echo '                 the conformance suite while ZooKeeper servers are killed and paused, and 500 rounds beside kazoo and Curator'
	@echo 'make soak-postgres'
	@echo '                 PostgreSQL killed under load 50 times, and the conformance suite meanwhile, in full'
	@echo 'make soak-client threads, forks, cancels, losses and closing in flight, on file, Redis, holdfastd and PostgreSQL, ten minutes'
	@echo 'make soak-faults each allocation and system call of table, journal, file store and client fails once, in every way that it can'
	@echo 'make soak-guards a million stale writes for each guard, and processes killed while they use a fence'
	@echo 'make soak-raft   consensus of our own in 100,000 worlds of faults'
	@echo 'make soak-lint   make lint, with the analyzer of clang as far into each function as it goes'
	@echo 'make soak-power  power that fails behind any call to the kernel, 100,000 times, and every byte of small directories flipped'
	@echo 'make sim         whole clusters and their clients in simulated time, with everything that can go wrong; SEEDS=, SEED=, SWITCH=, AGAIN=, JOBS=, FAST='
	@echo 'make explore     every way in which a few nodes of it can go, and every sequence of commands for a small lock table, within bounds; RUN=, STATES='
	@echo 'make mutants     known faults, put into the code one at a time: a test must find each of them; ONLY='
	@echo 'make soak-fuzz   ten minutes of hostile bytes for each reader of bytes; TARGET=, SECONDS='
	@echo 'make clean       removes build*/'
	@echo 'SETUP=:          with any of them: installs nothing'
