# Every target creates what it needs in .venv and asks nothing. A second call reinstalls nothing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TO_RUN := $(VENV)/.installed-to-run
STAMP  := $(VENV)/.installed
ARGS   ?=
ONLY   ?=
comma  := ,
found_browser = for name in chromium-headless-shell chromium chromium-browser google-chrome; do command -v $$name && break; done

# Installs what is named and says each package as it comes: minutes without a word look like a hang. (A loop
# and not awk: some keep what they read until they have a block of it.)
define install
rm -f $(VENV)/.failed; { $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
  -c constraints.txt -e '$(1)' || touch $(VENV)/.failed; } | while read -r does what _; do \
  case $$does in Collecting|Installing) echo "  $$does $$what";; esac; done; \
test ! -e $(VENV)/.failed
endef

.DEFAULT_GOAL := help
.PHONY: help run test fuzz lint pins bench clusters kube clouds sites apart compatibility faults endurance format wheel clean chromium browser page pictures docs

help: ## show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(TO_RUN): pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "creating $(VENV)"; \
	  $(PYTHON) -c 'import sys; v=sys.version_info; sys.exit(0 if v>=(3,10) else f"penstock needs Python 3.10 or newer, {sys.executable} is {v.major}.{v.minor}; set PYTHON=")' \
	  && $(PYTHON) -m venv $(VENV); }
	@echo "installing penstock and what it needs into $(VENV) (first time: a few minutes)"
	@$(call install,.[spark$(comma)examples])
	@touch $@

$(STAMP): $(TO_RUN)
	@echo "installing what its tests and measurements need (first time: a few minutes more)"
	@$(call install,.[spark$(comma)examples$(comma)dev])
	@touch $@

run: $(TO_RUN) ## the main job; ARGS="--policy threshold" and the like are passed on
	@$(BIN)/python examples/factory/demo.py $(ARGS)

test: lint chromium ## ruff, mypy and every test
	@$(BIN)/python -m pytest -n 2 --no-loadscope-reorder --durations=20 --durations-min=10 $(ARGS)

fuzz: $(STAMP) ## every odd input of the fuzzing suite, of which `make test` tries a part; ARGS="-k quantities"
	@PENSTOCK_FUZZ=long $(BIN)/python -m pytest -n 2 tests/fuzz $(ARGS)

lint: $(STAMP) ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

pins: $(STAMP) ## write down the versions that are installed, for whoever installs later with this Python
	@$(BIN)/python -m pip freeze --exclude-editable | $(BIN)/python -c 'import sys; \
	  v = "{}.{}".format(*sys.version_info); print("# The versions the tests last ran with: make pins"); \
	  [print(f"{line.strip()} ; python_version == \"{v}\"") for line in sys.stdin if "==" in line]' > constraints.txt

format: $(STAMP) ## rewrite the sources in the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP) ## measure; ONLY=core,spark,attach,filters,budgets,policies,planning,cells,attach.memory for a part, QUICK=1 for a look
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

clusters: $(STAMP) ## existing standalone, YARN and Kubernetes; ONLY=standalone,yarn,kubernetes,hdfs,s3 for a part
	@$(BIN)/python -m benchmarks.clusters $(if $(ONLY),--only $(ONLY))

kube: $(STAMP) ## build kube-apiserver and etcd from the Go proxy, once, for `make clusters`
	@$(BIN)/python -m benchmarks.clusters.kubernetes.build

faults: $(STAMP) ## a campaign of 200 faults on a real cluster, for hours; ARGS="--count 20 --channel files"
	-@$(BIN)/python -m faults.plain --times 2
	@$(BIN)/python -m faults $(ARGS)

endurance: $(STAMP) ## what grows in two hours; ARGS="--minutes 10"
	@$(BIN)/python -m faults.endurance $(ARGS)

vcsim: build/vcsim ## build govmomi's vCenter simulator, for the tests of the provider vmware; needs Go

build/vcsim: tests/providers/fakes/vcsim/main.go tests/providers/fakes/vcsim/go.mod
	@mkdir -p build
	@cd $(<D) && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o $(CURDIR)/$@ .

sites: $(STAMP) ## changes of every kind to a running topology by the API; ARGS="--part light" for one part
	@$(BIN)/python -m benchmarks.sites $(ARGS)

apart: $(STAMP) ## the taxi fleet over three sites of the rig, one of them cut off; to build/apart.json; needs root
	@$(BIN)/python -m benchmarks.apart $(ARGS)

clouds: $(STAMP) ## providers, runs on leased hosts, 1,000 hosts at a slow API; ONLY=contract,limits,spot for a part
	@if command -v go > /dev/null; then $(MAKE) --no-print-directory vcsim; else echo "no Go: vmware is left out"; fi
	@$(BIN)/python -m benchmarks.clouds $(if $(ONLY),--only $(ONLY))

wheel: $(STAMP) ## build the wheel into dist/
	@$(BIN)/python -m build --wheel

compatibility: $(STAMP) ## attach on every Spark and Python there is; ONLY=4.2,4.3:3.11 for a part
	@$(BIN)/python -m compatibility $(if $(ONLY),--only $(ONLY))

clean: ## remove what was built, keep .venv
	@rm -rf build dist runs .pytest_cache .mypy_cache .ruff_cache

# On a user's machine nothing is installed that pip does not install. A machine that is made for tests and thrown away
# (CI=true, root, Debian) gets a browser; where none can be had, tests of the page are skipped and say so.
chromium:
	@test -n "$$($(found_browser))" || test "$$CI" != true || test "$$(id -u)" != 0 || ! command -v apt-get > /dev/null || { \
	  echo "installing a browser for the tests of the page"; export DEBIAN_FRONTEND=noninteractive; \
	  { timeout 120 apt-get -qq update && timeout 240 apt-get -qq install --yes --no-install-recommends chromium-headless-shell; } \
	    > /dev/null 2>&1 || echo "no browser could be installed: tests of the page are skipped"; }

browser: $(STAMP) ## says whether there is a browser for the tests of the page, and how to get one
	@$(found_browser) || echo "install Chromium, on Debian: apt-get install chromium-headless-shell"

page: browser ## the page in a real browser, its large cases too: figures are printed
	@PENSTOCK_LARGE_PAGE=1 $(BIN)/python -m pytest -q -s tests/web

pictures: browser ## the pictures of the documentation, anew from what the tests of the page saw
	@$(BIN)/python -m pytest -q tests/web/test_page.py tests/web/test_change.py
	@for name in now why money comparison change; do cp build/screenshots/$$name.png docs/images/page-$$name.png; done

docs: $(STAMP) ## the documentation as a site, in build/site
	@$(BIN)/python -m mkdocs build --strict --quiet
	@echo "the site is in build/site: open build/site/index.html"
