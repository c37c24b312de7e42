# `make` lists its targets. Everything lives in .cache (and .demo), as root or not: nothing else on the machine is
# touched, except that root gets missing Debian packages installed (python3-venv, and those for the lab of hosts).

PYTHON ?= python3
# The ansible-core to test with: 2.19, or any other of requirements/core-*.in.
CORE ?= 2.19
# The benchmark: a file of tests/bench.
BENCH ?= assets
# Options for pytest, such as ARGS='-k quorum -x', or to `molecule test`.
ARGS ?=
# Which unit tests.
UNIT ?= tests/unit
# Which tests with real servers.
INTEGRATION ?= tests/integration
DEMO_VERSION ?= 2.15.1
# The demo's topology: cluster or supercluster.
TOPOLOGY ?= cluster
# Tests to run instead of all of a part: files, names of tests, or @FILE with a name in each line.
TESTS ?=
# The part that `make soak` repeats, the number of runs, and of busy processes next to it.
PART ?=
TIMES ?= 20
LOAD ?= 4
# Where pytest leaves its counts for tools/run_parts.py.
JUNIT ?=
# Where `make sample-lake` writes.
LAKE ?=
# The versions of nats-server in an offline bundle: VERSION, or VERSION=FILE@SHA256.
SERVERS ?=
# The key that signs a release, in gpg's notation.
KEY ?=

# This directory, through a link if its path has a space, and where temporary files may be executed.
PLACES := $(shell tools/places.sh)
TOP := $(word 1,$(PLACES))
$(if $(TOP),,$(error tools/places.sh failed))
CACHE := $(TOP)/.cache
VENV := $(CACHE)/venv$(if $(filter-out 2.19,$(CORE)),-$(CORE))
STAMP := $(VENV)/.made
DEV_BIN := $(CACHE)/venv/bin
DEV_LINK := $(CACHE)/dev/ansible_collections/natsops/jetstream
# The demo's environment: the development environment if it exists, otherwise a small one of its own.
DEMO_VENV := $(if $(wildcard $(CACHE)/venv/.made),$(CACHE)/venv,$(CACHE)/venv-demo)
# The environment that builds the artifact: for goals of the demo alone, the demo's.
BUILD_VENV := $(if $(filter demo%,$(MAKECMDGOALS)),$(if $(filter-out demo%,$(MAKECMDGOALS)),$(CACHE)/venv,$(DEMO_VENV)),$(CACHE)/venv)
# Spark has an environment of its own, as where the pipeline runs: it is 450 MB that nothing else here needs.
SPARK_VENV := $(CACHE)/venv-insights
# So has ansible-rulebook, as where rulebooks run.
EDA_VENV := $(CACHE)/venv-eda
# And awx.awx, which playbooks/awx uses, out of an older package ansible.
AWX_VENV := $(CACHE)/venv-awx
# And Galaxy's importer, which pins its dependencies.
GALAXY_VENV := $(CACHE)/venv-galaxy
# And Sphinx, which builds the site of the documents.
DOCS_VENV := $(CACHE)/venv-docs
# And the programs that build the wheel of a release and describe the release.
RELEASE_VENV := $(CACHE)/venv-release
INSTALLED := $(CACHE)/collections/ansible_collections/natsops/jetstream/MANIFEST.json
PYTEST = python -m pytest --durations=15 $(PYTEST_OPTIONS) $(if $(JUNIT),--junit-xml="$(JUNIT)") $(ARGS)
# The part of the installed pipeline that tests import.
PIPELINE = $(dir $(INSTALLED))roles/nats_insights/files
SPARK_PYTEST = PYTHONPATH=$(PIPELINE) $(SPARK_VENV)/bin/$(PYTEST)
# Folders are listed too: their time changes when a file is added or deleted.
SOURCES := $(shell find $(addprefix $(TOP)/,galaxy.yml README.md LICENSE CHANGELOG.md CONTRIBUTING.md SECURITY.md meta plugins roles playbooks extensions docs \
	changelogs LICENSES REUSE.toml tests/config.yml $(filter-out tests/lab/conftest.py tests/lab/test_%.py,$(wildcard tests/lab/*.py)) tests/lab/python/sitecustomize.py) \( -name __pycache__ -o -name '.*_cache' \) -prune -o -not -name '*.pyc' -print 2>/dev/null)

# Licences, locks, recorded replies and generated or foreign files are not ours to correct.
NOT_SPELLED := ':!LICENSES' ':!requirements/*.txt' ':!*.svg' ':!*.png' ':!*.json' ':!*.min.*' ':!tests/support/replies'

# Folders from which tests and tools import.
TYPED = MYPYPATH=tests:tests/lab:tests/lab/python:tools:roles/nats_insights/files
LINT_PARTS := lint-words lint-spelling lint-imports lint-ruff lint-mypy lint-insights lint-yaml lint-ansible lint-changelog lint-docs lint-reuse lint-galaxy lint-github
# Except for 2.19; 2.21 needs Python 3.12, see tools/matrix.py.
OTHER_CORES := 2.16 2.17 2.18 2.21
SANITY_PARTS := sanity-2.19 sanity-2.16
SCENARIO_PARTS := $(patsubst extensions/molecule/%/molecule.yml,test-molecule-%,$(wildcard extensions/molecule/*/molecule.yml))

# Ansible needs UTF-8, and a locale that is not installed ends it.
export LC_ALL := C.UTF-8
unexport LANGUAGE
export TMPDIR := $(word 2,$(PLACES))
export PATH := $(VENV)/bin:$(DEV_BIN):$(PATH)
export ANSIBLE_CONFIG := $(TOP)/tests/ansible.cfg
export ANSIBLE_HOME := $(CACHE)/ansible
export ANSIBLE_COLLECTIONS_PATH := $(CACHE)/collections
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE := 1
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.DELETE_ON_ERROR:
.PHONY: help demo demo-cluster demo-deploy demo-supercluster demo-stop demo-clean sample-lake test soak test-fast prepare test-unit $(OTHER_CORES:%=test-unit-%) test-integration test-modules test-playbooks test-insights test-eda test-chaos test-lab test-molecule test-molecule-consumer test-matrix test-oldest-spark bench $(SCENARIO_PARTS) \
	lint $(LINT_PARTS) sanity sanity-2.19 $(OTHER_CORES:%=sanity-%) docs pictures build release offline licences views ee dev hooks coverage lock vendor clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z0-9.-]*:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

## --- Trying it ---------------------------------------------------------------------------------------------------------

DEMO_DIR := $(TOP)/.demo/$(TOPOLOGY)
DEMO_PLAY := ANSIBLE_REMOTE_TMP=$(CACHE)/ansible/tmp ANSIBLE_ASYNC_DIR=$(CACHE)/ansible/async ANSIBLE_INVENTORY_UNPARSED_WARNING=false $(BUILD_VENV)/bin/ansible-playbook -e demo_dir=$(DEMO_DIR) \
	-e demo_topology=$(TOPOLOGY)
DEMO = binary=$$(NATSOPS_CACHE="$${NATSOPS_CACHE:-$(CACHE)/downloads}" $(BUILD_VENV)/bin/python tests/lab/binaries.py $(DEMO_VERSION)) && \
	$(DEMO_PLAY) -e demo_version=$(DEMO_VERSION) -e demo_binary="$$binary"

demo: demo-$(TOPOLOGY) ## a three-server JetStream cluster on this machine, by the real playbook, and its insights (TOPOLOGY=supercluster: three clusters)

# Spark's environment is nearly the complete download of a fresh machine: it is made while the cluster starts.
demo-cluster: $(INSTALLED)
	@$(MAKE) --no-print-directory -j2 BUILD_VENV=$(BUILD_VENV) demo-deploy $(SPARK_VENV)/.made
	@echo "The cluster is running. Next, the demo takes snapshots under load and evaluates them with Spark, which takes longer than the cluster."
	@$(DEMO) -e nats_insights_venv=$(SPARK_VENV) natsops.jetstream.demo_insights
	@echo "Before the load:" && cat $(DEMO_DIR)/report.txt && echo && echo "After the load:" && cat $(DEMO_DIR)/insights.txt

demo-deploy: $(INSTALLED)
	@$(DEMO) natsops.jetstream.demo
	@cat $(DEMO_DIR)/report.txt

demo-supercluster: $(INSTALLED)
	@$(DEMO) natsops.jetstream.demo_supercluster
	@cat $(DEMO_DIR)/report.txt

sample-lake: $(DEV_LINK) ## four weeks of hourly snapshots of a generated fleet in the directory LAKE, from 2026-11-01, to try the insights on
	$(if $(LAKE),,$(error LAKE is not set: make sample-lake LAKE=/tmp/lake))
	@PYTHONPATH=$(CACHE)/dev:tests $(PYTHON) tests/support/fleet.py "$(LAKE)" --servers 3 --streams 10 --minutes 40320 --every 60 --restart 38160

demo-clean: ## stops the demo's servers and removes their files
	@for folder in .demo/*; do if [ -d $$folder ]; then $(MAKE) --no-print-directory demo-stop TOPOLOGY=$${folder##*/} || exit 1; fi; done
	@rm -rf .demo $(CACHE)/downloads

demo-stop: $(INSTALLED)
	@$(DEMO_PLAY) natsops.jetstream.demo_remove

## --- Tests: all but test-fast use the built and installed artifact -----------------------------------------------------

# Everything in tests/unit but packaging, which needs the development tools, and roles, which runs ansible-playbook.
FAST := $(filter-out tests/unit/packaging/ tests/unit/roles/,$(wildcard tests/unit/*/))
test-fast: export ANSIBLE_COLLECTIONS_PATH := $(CACHE)/dev
test-fast: export PATH := $(CACHE)/venv-fast/bin:$(PATH)
test-fast: PYTEST_OPTIONS = --quiet -n 2 -m 'not installs'
test-fast: $(CACHE)/venv-fast/.made $(DEV_LINK) ## rules, filters and parsers of the checkout: a small environment, no artifact
	@$(CACHE)/venv-fast/bin/$(PYTEST) $(FAST)

# Two at a time: first those of a few seconds, then the longest, and last those that fill the gaps at the end. The scenario
# systemd runs in test-matrix: tests/lab deploys the same cluster.
QUICK_PARTS := lint-words lint-spelling lint-imports lint-ruff lint-yaml lint-changelog lint-reuse lint-github
test: ## all but the longest tests (test-chaos, the other molecule scenarios); ends with the totals
	@$(PYTHON) tools/run_parts.py prepare $(QUICK_PARTS) --together test-playbooks --lab test-lab --together test-insights \
		sanity-2.19 test-molecule-default test-eda test-modules test-unit test-unit-2.16 \
		$(filter-out lint-insights $(QUICK_PARTS),$(LINT_PARTS))

soak: ## repeats PART next to busy processes and prints how often each test failed: PART=test-modules TIMES=20 LOAD=4 (TESTS=tests/integration/test_roll.py or ARGS='-k roll' for some of its tests)
	@$(PYTHON) tools/soak.py $(PART) --times $(TIMES) --load $(LOAD)

# Shared prerequisites are made before two parts run at once. Spark's environment takes minutes and only test-insights needs it.
prepare: dev $(RELEASE_VENV)/.made $(INSTALLED)
	@tools/java.sh

test-unit: $(STAMP) $(RELEASE_VENV)/.made $(INSTALLED) ## pure parts, filters, packaging (CORE=2.16 for the oldest ansible-core)
	@$(PYTEST) $(or $(TESTS),$(UNIT))

# Rules and documents are the same with every ansible-core; `make test-unit CORE=2.16` runs all tests.
OF_CORE := $(filter-out tests/unit/module_utils/ tests/unit/packaging/,$(wildcard tests/unit/*/)) tests/unit/module_utils/test_module.py \
	$(patsubst %,tests/unit/packaging/test_%.py,commands expressions plugins)

$(OTHER_CORES:%=test-unit-%): test-unit-%:
	@$(MAKE) --no-print-directory test-unit CORE=$* UNIT="$(OF_CORE)"

# See tests/lab/python/sitecustomize.py.
test-unit test-integration test-modules test-playbooks test-eda test-chaos test-lab $(SCENARIO_PARTS) test-molecule-consumer: export PYTHONPATH := $(TOP)/tests/lab/python

test-integration: PYTEST_OPTIONS = -n 2 --no-loadscope-reorder
test-integration: $(STAMP) $(AWX_VENV)/.made $(CACHE)/venv-2.16/.made $(INSTALLED) ## test-modules and test-playbooks in one
	@$(PYTEST) -m 'not chaos' $(or $(TESTS),$(INTEGRATION))

# Five sixths of its time it waits for elections: five processes take one core.
test-modules: PYTEST_OPTIONS = -n 5 --no-loadscope-reorder
test-modules: $(STAMP) $(INSTALLED) ## modules against real nats-servers on loopback
	@$(PYTEST) -m 'not chaos and not playbook' $(or $(TESTS),$(INTEGRATION))

test-playbooks: PYTEST_OPTIONS = -n 2 --no-loadscope-reorder
test-playbooks: $(STAMP) $(AWX_VENV)/.made $(CACHE)/venv-2.16/.made $(INSTALLED) ## roles and playbooks against real nats-servers on loopback
	@$(PYTEST) -m 'not chaos and playbook' $(or $(TESTS),$(INTEGRATION))

# A command line of coverage.py in whose data only the collection's own code counts.
COVERAGE := $(CACHE)/coverage
coverage: export COVERAGE_FILE := $(COVERAGE)/data
coverage: export PYTHONPATH := $(TOP)/tests/lab/python
coverage: PYTEST_OPTIONS = -n 5 --no-loadscope-reorder
coverage: $(CACHE)/venv/.made $(INSTALLED) ## lines and branches of module_utils that unit and module tests execute; pages in .cache/coverage
	@rm -rf $(COVERAGE) && mkdir -p $(COVERAGE)
	@coverage run --source=$(dir $(INSTALLED))plugins/module_utils -m $(subst python -m ,,$(PYTEST)) -m 'not chaos and not playbook' $(UNIT) $(INTEGRATION); \
		failed=$$?; coverage combine --quiet && coverage html --quiet --directory $(COVERAGE)/html && coverage report --format=markdown >$(COVERAGE)/summary.md && \
		coverage report --skip-covered --sort=cover && exit $$failed

# Spark plans for longer than it computes, and plans in one thread: two processes, each with a session of its own.
test-insights: PYTEST_OPTIONS = -n 2 --no-loadscope-reorder
test-insights: lint-insights $(SPARK_VENV)/.connect $(INSTALLED) ## the Spark pipeline on small frames and on a generated fleet
	@tools/chromium.sh >/dev/null
	@$(SPARK_PYTEST) -m 'not chaos' $(or $(TESTS),tests/insights)

# Not part of test: the other Spark has 0.5 GB, and all jobs run twice.
test-oldest-spark: $(SPARK_VENV)/.made $(CACHE)/venv-oldest-spark/.made $(INSTALLED) ## the jobs with the oldest supported PySpark (not part of test)
	@OLDEST_SPARK_PYTHON=$(CACHE)/venv-oldest-spark/bin/python PYTHONPATH=$(PIPELINE):$(CACHE)/collections \
		$(SPARK_VENV)/bin/$(PYTEST) tests/insights/test_oldest_spark.py

# It waits, too.
test-eda: PYTEST_OPTIONS = -n 3
test-eda: $(EDA_VENV)/.made $(INSTALLED) ## event sources and rulebooks in ansible-rulebook
	@PYTHONPATH=$(PYTHONPATH):$(PIPELINE) $(EDA_VENV)/bin/$(PYTEST) $(or $(TESTS),tests/eda)

# Three runs of pytest: a JUnit file would only contain the last one.
test-chaos: override JUNIT :=
test-chaos: $(STAMP) $(SPARK_VENV)/.made $(INSTALLED) ## complete operations under load and faults, many minutes each (not part of test)
	@$(PYTEST) -m chaos tests/integration
	@$(PYTEST) -m chaos tests/lab
	@$(SPARK_PYTEST) -m chaos tests/insights

test-lab: $(STAMP) $(RELEASE_VENV)/.made $(INSTALLED) ## roles and playbooks on real systemd hosts (root)
	@$(PYTEST) -m 'not chaos' $(or $(TESTS),tests/lab)

# Those of the pipeline run in Spark's environment.
bench: $(STAMP) $(INSTALLED) $(if $(filter insights/%,$(BENCH)),$(SPARK_VENV)/.made $(CACHE)/venv-bench/.made) ## figures for docs/internals/benchmarks.md: BENCH=assets, asset_plans, backup, fleet, leaders, metrics, replicas, restore, roll, operations, insights/collector, insights/source, insights/forecast, insights/hourly, insights/truth, insights/faults or insights/pipeline (ARGS='--help'; not part of test)
	@PYTHONPATH=$(TOP)/tests:$(TOP)/tests/lab:$(CACHE)/collections:$(PIPELINE) BENCH_PYTHON=$(CACHE)/venv-bench/bin/python \
		$(if $(filter insights/%,$(BENCH)),$(SPARK_VENV)/bin/)python tests/bench/$(BENCH).py $(ARGS)

test-molecule: ## the molecule scenarios (root: some run on the lab's hosts)
	@$(MAKE) --no-print-directory --keep-going $(SCENARIO_PARTS) test-molecule-consumer

$(SCENARIO_PARTS): test-molecule-%: $(CACHE)/venv/.made $(INSTALLED)
	@molecule test --scenario-name $* $(ARGS)

test-matrix: $(CACHE)/venv/.made $(INSTALLED) ## every supported ansible-core, host and server, hours; writes docs/compatibility.md (ARGS='core-2.17 trixie-2.15.1', not part of test)
	@python tools/matrix.py $(ARGS)

# A user's project outside the checkout: a role that depends on nats_server.
CONSUMER := $(CACHE)/consumer
test-molecule-consumer: $(CACHE)/venv/.made $(INSTALLED) ## molecule as another project uses it, see docs/molecule.md
	@rm -rf $(CONSUMER) && cp -r tests/consumer $(CONSUMER) && cd $(CONSUMER)/orders && molecule test $(ARGS)

lint: ## ruff, mypy, yamllint, ansible-lint, changelog, the site of the documents, REUSE, workflows, Galaxy's importer
	@$(MAKE) --no-print-directory --keep-going $(LINT_PARTS)

lint-words: ## the wording of code, documents and test names: docs/glossary.md and the rules in tools/words.py, whose counts may only fall
	@$(PYTHON) tools/words.py

# Its environment has one package and does not need the development environment.
lint-spelling: $(CACHE)/venv-spelling/.made ## codespell; pyproject.toml has the exceptions
	@git ls-files -z -- . $(NOT_SPELLED) | xargs -0 $(CACHE)/venv-spelling/bin/codespell

# Its environment is small, too.
lint-imports: $(CACHE)/venv-imports/.made $(DEV_LINK) ## the layers of module_utils, and rules without a client; pyproject.toml has both contracts
	@PYTHONPATH=$(CACHE)/dev $(CACHE)/venv-imports/bin/lint-imports pyproject.toml --no-cache

lint-ruff: $(CACHE)/venv/.made ## ruff
	@ruff check --output-format concise --cache-dir $(CACHE)/ruff .
	@ruff format --check --quiet --cache-dir $(CACHE)/ruff . || { echo 'Not formatted: run ruff format.'; exit 1; }

lint-mypy: $(CACHE)/venv/.made $(DEV_LINK) ## mypy of the collection, the tests and the tools
	@mypy -p ansible_collections.natsops.jetstream.plugins || failed=1; \
	$(TYPED) mypy --exclude 'tests/bench/insights|tests/support/(forecasting|lakes|real_faults|real_faults_report|spark_cluster|two_days)' tools tests/conftest.py tests/support tests/unit tests/integration tests/eda tests/bench \
		extensions/eda/plugins/event_source roles/nats_program/files/pack.py roles/nats_insights/files/collector roles/nats_insights/files/exporter roles/nats_cluster/files || failed=1; \
	$(TYPED) mypy tests/lab || failed=1; \
	test -z "$$failed"

# lint-mypy checks the imported modules of the collection; Spark's environment lacks their dependencies.
lint-insights: $(CACHE)/venv/.made $(SPARK_VENV)/.made $(DEV_LINK)
	@$(TYPED) mypy --follow-imports silent --python-executable $(SPARK_VENV)/bin/python \
		roles/nats_insights/files/jetstream_insights tests/insights tests/bench/insights tests/support/forecasting.py tests/support/lakes.py tests/support/two_days.py \
		tests/support/real_faults.py tests/support/real_faults_report.py tests/support/spark_cluster.py

lint-yaml: $(CACHE)/venv/.made ## yamllint
	@yamllint --strict .

lint-ansible: $(CACHE)/venv/.made $(AWX_VENV)/.made $(INSTALLED) ## ansible-lint
	@ANSIBLE_COLLECTIONS_PATH=$(ANSIBLE_COLLECTIONS_PATH):$$(echo $(AWX_VENV)/lib/python*/site-packages) ansible-lint --nocolor

lint-changelog: $(CACHE)/venv/.made
	@antsibull-changelog lint

# Any warning of Sphinx or antsibull-docs is an error. Sphinx also finds rstcheck's errors.
lint-docs: $(DOCS_VENV)/.made $(INSTALLED) ## the site of the documents, without warnings
	@$(DOCS_VENV)/bin/antsibull-docs lint-collection-docs --plugin-docs --skip-rstcheck --validate-collection-refs self $(TOP)
	@tools/docsite/build.sh $(DOCS_VENV)/bin $(CACHE)/docs

lint-reuse: $(CACHE)/venv/.made
	@reuse lint --lines

# By the schemas that check-jsonschema carries, without a network.
lint-github: $(CACHE)/venv/.made
	@check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml tests/consumer/orders/.github/workflows/*.yml
	@check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	@check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@check-jsonschema --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	@pre-commit validate-config .pre-commit-config.yaml

# Galaxy's checks of an uploaded artifact.
lint-galaxy: $(GALAXY_VENV)/.made $(INSTALLED)
	@$(GALAXY_VENV)/bin/python tools/galaxy.py $(CACHE)/dist/*.tar.gz

sanity: ## ansible-test sanity on both ansible-cores (test has that of the newer one)
	@$(MAKE) --no-print-directory --keep-going $(SANITY_PARTS)

sanity-2.19: $(CACHE)/venv/.made
	@$(CACHE)/venv/bin/python tools/sanity.py $(ARGS)

$(OTHER_CORES:%=sanity-%): sanity-%: $(CACHE)/venv-%/.made
	@$(CACHE)/venv-$*/bin/python tools/sanity.py $(ARGS)

## --- Making it ---------------------------------------------------------------------------------------------------------

docs: $(CACHE)/venv/.made $(DEV_LINK) ## writes docs/reference from the argument specs and the plugins, the alert rules, the dashboard, and builds the site in .cache/docs/html
	@ANSIBLE_COLLECTIONS_PATH=$(CACHE)/dev python tools/reference.py
	@ANSIBLE_COLLECTIONS_PATH=$(CACHE)/dev python tools/alert_rules.py
	@python tools/dashboards.py
	@$(MAKE) --no-print-directory lint-docs
	@ls $(CACHE)/docs/html/index.html

pictures: $(CACHE)/venv/.made demo-cluster ## the pictures in docs/images, of the demo
	@python tools/pictures.py $(DEMO_DIR)

build: $(INSTALLED) ## the artifact and its bill of materials in .cache/dist, installed in .cache/collections
	@ls $(CACHE)/dist/*.tar.gz
	@$(DEV_BIN)/python tools/dependencies.py sbom $(CACHE)/dist/*.tar.gz

release: $(RELEASE_VENV)/.made $(CACHE)/venv/.made ## the files of a release in .cache/release, built twice, checked by Galaxy's importer and verified; KEY=FINGERPRINT signs them
	@$(RELEASE_VENV)/bin/python tools/release.py check --key '$(KEY)'
	@$(MAKE) --no-print-directory build lint-galaxy lint-docs ee
	@$(RELEASE_VENV)/bin/python tools/release.py collect --key '$(KEY)' $(CACHE)/release $(CACHE)/dist/*.tar.gz $(CACHE)/dist/*.cdx.json \
		site=$(CACHE)/docs/html environments=$(CACHE)/ee
	@$(DEV_BIN)/python tools/release_verify.py $(CACHE)/release

# Packages come from the package index, nats-server from its release or from a file.
offline: $(RELEASE_VENV)/.made $(INSTALLED) ## the bundle for controllers without a network in .cache/offline: SERVERS=2.12.15 or 'VERSION=FILE@SHA256 …' (ARGS='--insights --python 3.9 3.12 --architecture arm64')
	@$(RELEASE_VENV)/bin/python tools/offline/build.py $(CACHE)/offline $(CACHE)/dist/*.tar.gz $(addprefix --server=,$(SERVERS)) $(ARGS)

# Licences are read from the installed packages.
licences: $(CACHE)/venv/.made $(SPARK_VENV)/.made $(EDA_VENV)/.made $(GALAXY_VENV)/.made $(DOCS_VENV)/.made $(AWX_VENV)/.made $(CACHE)/venv-bench/.made $(RELEASE_VENV)/.made ## writes docs/reference/licences.md, of all development environments
	@$(DEV_BIN)/python tools/dependencies.py licences

# Types of columns are known only to Spark.
views: $(SPARK_VENV)/.made $(INSTALLED) ## writes docs/reference/insights_views.md, the columns that own checks of the insights may use
	@PYTHONPATH=$(PIPELINE) $(SPARK_VENV)/bin/python -m jetstream_insights.findings.own_checks >$(CACHE)/views.md
	@mv $(CACHE)/views.md docs/reference/insights_views.md

ee: $(INSTALLED) ## the build contexts of the execution and decision environments in .cache/ee
	@rm -rf $(CACHE)/ee
	@for name in execution-environment insights decision-environment; do $(DEV_BIN)/ansible-builder create -f extensions/execution-environment/$$name.yml \
		-c $(CACHE)/ee/$$name --output-filename Containerfile || exit 1; done

# Each is locked for the oldest Python that it runs on.
lock: LOCK = uv pip compile --no-config --system-certs --quiet --universal --upgrade --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'
lock: $(CACHE)/venv/.made ## pins the newest allowed versions of the development environments, and of the packages that roles install
	@cd requirements && for file in $(filter-out test.in,$(notdir $(wildcard requirements/*.in))); do \
		case $$file in core-2.21.in) python=3.12 ;; offline.in) python=3.9 ;; *) python=3.11 ;; esac; \
		$(LOCK) --python-version $$python -o $${file%.in}.txt $$file || exit 1; done
	@cd roles/nats_program/files/locks && for file in *.in; do \
		$(LOCK) --python-version 3.9 -o $${file%.in}.txt $$file || exit 1; done
	@cd roles/nats_insights/files && for name in requirements requirements-connect; do \
		$(LOCK) --no-strip-extras --python-version 3.11 -o $$name-locked.txt $$name.txt || exit 1; done

vendor: ## fetches the chart library of the insights' report from npm, as tools/vendor.py names it
	@$(PYTHON) tools/vendor.py

clean: demo-clean ## removes everything that was made
	rm -rf .cache
	@[ ! -h $(TOP) ] || rm $(TOP)

dev: $(CACHE)/venv/.made $(CACHE)/venv-2.16/.made $(DEV_LINK) ## the environments, and the checkout as an importable collection

hooks: $(CACHE)/venv/.made ## installs the git hooks of .pre-commit-config.yaml: quick lints, and the form of commit messages
	@pre-commit install

$(CACHE)/venv/.made: requirements/dev.txt tools/venv.sh
	@PYTHON=$(PYTHON) tools/venv.sh $(@D) $< && touch $@

$(CACHE)/venv-2.%/.made: requirements/core-2.%.txt tools/venv.sh
	@PYTHON=$(PYTHON) tools/venv.sh $(@D) $< && touch $@

$(CACHE)/venv-%/.made: requirements/%.txt tools/venv.sh
	@PYTHON=$(PYTHON) tools/venv.sh $(@D) $< && touch $@

$(SPARK_VENV)/.made: requirements/insights.txt tools/venv.sh tools/java.sh
	@tools/java.sh && PYTHON=$(PYTHON) tools/venv.sh $(@D) $< && touch $@

# For tests only. Spark Connect adds a third to the download.
$(SPARK_VENV)/.connect: requirements/connect.txt $(SPARK_VENV)/.made
	@$(SPARK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $< && touch $@

$(EDA_VENV)/.made: requirements/eda.txt tools/venv.sh tools/java.sh
	@tools/java.sh && PYTHON=$(PYTHON) tools/venv.sh $(@D) $< && touch $@

$(DEV_LINK):
	@mkdir -p $(@D) && ln -s ../../../.. $@

$(INSTALLED): $(SOURCES) | $(BUILD_VENV)/.made
	@rm -rf $(CACHE)/dist $(CACHE)/collections
	@$(BUILD_VENV)/bin/python tools/artifact.py $(CACHE)/dist
	@$(BUILD_VENV)/bin/ansible-galaxy collection install --offline --force -p $(CACHE)/collections $(CACHE)/dist/*.tar.gz >/dev/null
	@touch $@
