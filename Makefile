# Redrive: the usual commands. Meson and Ninja do the work; this file only knows the names. Every target installs the
# Debian packages that it misses (as root, or with sudo).
BUILD ?= build
ARGS ?=
PREFIX ?= /usr/local
.DEFAULT_GOAL := all
.NOTPARALLEL:
.PHONY: all help demo check bench bench-kafka fuzz soak mutate docs install clean packages packages-check packages-bench

all: packages ## Build build/redrive, build/libredrive.a and build/libredrive.so
	@test -f $(BUILD)/build.ninja || meson setup -Dtests=auto --prefix=$(PREFIX) $(BUILD)
	ninja -C $(BUILD) product

demo: all ## Run the demo: real webhooks to a flaky service; ARGS="--for 20s" ends by itself
	$(BUILD)/redrive demo $(ARGS)

check: packages-check ## Run all tests and checks; the last line is "N passed, N failed"; ARGS=--help for parts
	@python3 tools/check.py $(ARGS)

bench: packages-bench all ## Run the benchmarks; results in build/bench/results.json and as a table
	@python3 bench/run.py --build $(BUILD) $(ARGS)

bench-kafka: packages-bench all ## Compare with other consumers of Kafka, on a real broker; more than an hour
	@python3 bench/run.py --build $(BUILD) kafka $(ARGS)

fuzz: packages-check ## Fuzz for long: every target in turn; ARGS="--seconds 600 fuzz_text" for less
	@python3 tools/check.py --fuzz $(ARGS)

soak: packages-check ## Run simulated worlds until one fails or you stop it; ARGS="--from SEED" to start elsewhere
	@test -f $(BUILD)/build.ninja || meson setup --prefix=$(PREFIX) $(BUILD)
	ninja -C $(BUILD) tests/sim/sim
	$(BUILD)/tests/sim/sim --soak $(ARGS)

mutate: packages-check ## Break one rule of the core at a time: do the tests notice?
	tools/mutate.sh $(ARGS)

docs: all ## Generate the man page and the references from the program's own tables, into build/docs
	@mkdir -p $(BUILD)/docs
	@for page in configuration api metrics commands; do \
		$(BUILD)/redrive reference $$page >$(BUILD)/docs/$$page.md || exit 1; done
	@$(BUILD)/redrive reference openapi >$(BUILD)/docs/openapi.json
	@$(BUILD)/redrive reference man >$(BUILD)/docs/redrive.1
	@echo "$(BUILD)/docs: $$(ls $(BUILD)/docs | tr '\n' ' ')"

install: all ## Install program, header, libraries, pkg-config file and man page; PREFIX=/usr/local, DESTDIR
	meson configure $(BUILD) -Dprefix=$(PREFIX)
	ninja -C $(BUILD) product redrive.1
	meson install -C $(BUILD) --no-rebuild

clean: ## Remove all build directories
	rm -rf build build-asan build-tsan build-fuzz

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

packages:
	@tools/install-packages.sh build

packages-check:
	@tools/install-packages.sh check

packages-bench:
	@tools/install-packages.sh bench
