PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
FILES  := pyproject.toml constraints.txt

# Every process that the tests start reads what one has compiled.
test test-all: export PYTHONDONTWRITEBYTECODE =

.PHONY: run test test-all pair test-versions test-newest test-cuda test-vllm test-browser lint bench bench-cuda reproduce samples docs clean

run: $(VENV)/.model
	$(BIN)/spec-tui

# Twice as many processes as the two cores that this needs: tests of the screen often wait. A process that has
# finished takes tests from the others.
# The sweeps over every family, variant and size run in test-all: see tests/tiers.py.
test: MARKED = -m "not thorough"
test test-all: $(VENV)/.test $(VENV)/.model pair
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -n 4 --dist worksteal $(MARKED)

# qwen-coder for the tests, where it comes in time.
pair: $(VENV)/.test
	$(BIN)/python tools/get_pair.py --seconds 120

# The wheel, in environments with the newest versions that pip gives and with the oldest that pyproject.toml allows.
test-versions test-newest: $(VENV)/.test
	$(BIN)/python tools/test_versions.py $(patsubst test-%,%,$(filter test-newest,$@))

# A real vLLM, in an environment of its own outside of this folder: its counts and its texts against ours. Takes minutes.
test-vllm: $(VENV)/.test
	$(BIN)/python tools/test_vllm.py

# What a GPU computes, where there is a CUDA device.
test-cuda: $(VENV)/.test
	SPEC_TUI_TESTS_CUDA=1 $(BIN)/python -m pytest tests/engines/test_cuda.py

# spec-tui serve in a real browser: Chromium, of the distribution's packages, without a window. Takes minutes.
test-browser: $(VENV)/.test
	$(BIN)/python tools/test_browser.py

# What may import what is in pyproject.toml; the tests check it, too.
lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/lint-imports

bench: $(VENV)/.run
	$(BIN)/spec-tui bench
	$(BIN)/python tools/bench.py

# All tables of the papers, small: each takes two minutes at most.
reproduce: $(VENV)/.run
	$(BIN)/spec-tui reproduce --all --quick --out build/papers

# What the GPU path promises; without a CUDA device it says so.
bench-cuda: $(VENV)/.run
	$(BIN)/python tools/bench_cuda.py

# Everything that depends on the weights: the models' card, the datastore of their answers, recorded runs, the README's
# picture.
# Training new weights takes hours and is a command of its own: tools/train_sample_models.py --help
samples: $(VENV)/.test
	$(BIN)/python tools/make_model_card.py
	$(BIN)/python tools/build_sample_datastores.py sample
	$(BIN)/python tools/record_traces.py
	$(BIN)/python tools/screenshot.py docs talk
	$(BIN)/python tools/screenshot.py docs/pictures chat step price race --size 80x24 120x40 200x60

# pip compiles Python on one core, this on all; it skips files in some packages that are not Python. Native code is
# compiled here, or the first start would wait for it.
define install
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '$(1)'
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	$(BIN)/python -c "from engines.model.native.native_check import unavailable; \
		print(unavailable() or 'native code is ready')"
	touch $(VENV)/.run $@
endef

# The documentation as pages that need no server and no network: site/index.html.
docs: $(VENV)/.docs
	$(BIN)/python tools/build_site.py

$(VENV)/.docs: $(FILES)
	$(call install,.[docs])

$(VENV)/.run: $(FILES)
	$(call install,.)

$(VENV)/.test: $(FILES)
	$(call install,.[test])

# A model that can talk or write code, asked for once, without a terminal the smaller: where it cannot be fetched, the
# sample pair does.
$(VENV)/.model: $(VENV)/.run
	$(BIN)/spec-tui model get --skippable
	touch $@

clean:
	rm -rf $(VENV)
