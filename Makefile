# make run    set up, train a model on the built-in corpus and test its attention: what was found, and a page
# make audit  set up, the whole audit on part of the built-in corpus (a few minutes), say where the page is
# make test   set up, run all tests (make test-fast: those that train nothing)
PYTHON ?= python3
BIN := .venv/bin
export HF_HUB_DISABLE_TELEMETRY = 1

.PHONY: run audit docs test test-fast faults test-slow test-anywhere test-numbers-again coverage fuzz lint format benchmark clean
.DELETE_ON_ERROR:

# fewer epochs than the recipe's and fewer test texts than the corpus has: the same questions, the same answers, sooner
# so small matrices are not worth a second thread (44 s by the clock instead of 54 on two cores)
run: export OMP_NUM_THREADS = 1
run: .venv/ready
	$(BIN)/python -m attnprobe +experiment=jain_adversarial 'probe=[permutation,adversarial,skill,swaps]' training.epochs=3 data.source.test_size=200 figures=false page=runs/report.html on_finished=skip

audit: .venv/ready
	$(BIN)/python -m attnprobe +experiment=audit study.minutes=3

test: .venv/ready
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

# the inner loop: no training, no process, no browser, no figures, no campaign of thousands of cases
test-fast: .venv/ready
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not slow and not whole"

faults: .venv/ready
	$(BIN)/python -m tests.faults --jobs 2

test-slow: .venv/ready
	$(BIN)/python -m pytest -m "slow or real_data"

# the tests (`TESTS="tests/exact tests/probes"`: some of them) under other vector units, without oneDNN, with two threads, in a
# stranger's shell, in random order, and on a busy machine
STRANGER = COLUMNS=40 LC_ALL=C TZ=Asia/Kathmandu PYTHONHASHSEED=1 TERM=dumb PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 HF_HUB_OFFLINE=1
test-anywhere: .venv/ready
	for settings in ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ATTNPROBE_TEST_ONEDNN=0 OMP_NUM_THREADS=2 "$(STRANGER)"; do \
		env $$settings $(BIN)/python -m pytest --quiet --numprocesses 2 $(TESTS) || exit; \
	done
	$(BIN)/python -m pytest --quiet --numprocesses 2 --random-order --random-order-bucket=module $(TESTS)
	busy=; for core in $$(seq $$(nproc)); do yes > /dev/null & busy="$$busy $$!"; done; trap "kill $$busy" EXIT INT TERM; \
		$(BIN)/python -m pytest --quiet --numprocesses 2 $(TESTS)

# the solvers, erasures and measures on PyTorch's plainest code, as a processor without vector units runs them
test-numbers-again: .venv/ready
	ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest --quiet --numprocesses 2 \
		tests/exact tests/importance/test_gradient.py \
		tests/importance/test_plausibility.py tests/test_measures.py

# lines of the package that no test runs, the tests' own processes included
coverage: .venv/ready
	$(BIN)/python -m pytest --numprocesses 2 --cov --cov-report=term-missing:skip-covered

# 10,000 generated command lines and data files, each of which is a run or one line; damaged checkpoints
fuzz: .venv/ready
	$(BIN)/python -m tests.fuzz overrides 10000
	$(BIN)/python -m tests.fuzz files 10000
	$(BIN)/python -m tests.fuzz checkpoints 1000
	$(BIN)/python -m tests.runs.hostile 10000

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# the documentation as a site in build/site, in an environment of its own; a link that leads nowhere fails
docs: .venv-docs/ready
	.venv-docs/bin/mkdocs build --strict --clean

.venv-docs/ready: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet $$($(PYTHON) -c 'import tomllib; \
		print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	touch $@

benchmark: .venv/ready
	$(BIN)/python -m benchmarks

# torch first and pinned (constraints.txt says why), then everything else; `make run CPU_WHEELS=ADDRESS` takes torch from the
# index of wheels without CUDA, whose address is on PyTorch's page "Start Locally" (Pip, CPU)
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "attnprobe needs Python 3.11 or newer; name one: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet $(if $(CPU_WHEELS),--index-url $(CPU_WHEELS)) --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-docs build *.egg-info .pytest_cache .mypy_cache .ruff_cache
