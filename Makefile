# Everything is installed into .venv here; nothing else on the machine is touched.
#
#   make demo      set up, train the small model on a new concept, show the report
#   make test      set up, then ruff, types and all tests (real ComfyUI and browser tests where those are there)
#   make check     ruff and types only
#   make format    put the code into shape
#   make clean     remove .venv and caches; what was trained stays in output/
#
# PYTHON=python3.12              another Python (3.10 or newer)
# TORCH="torch==2.13.0 ..."      another torch; any `pip install` words: TORCH="torch torchvision --index-url https://..."
# COMFYUI_PATH=/path/to/ComfyUI  the ComfyUI for the host and browser tests
# PYTEST="-k buckets"            more words for pytest

PYTHON ?= python3
TORCH ?= torch torchvision
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

COMFYUI_PATH ?= $(patsubst %/main.py,%,$(firstword $(wildcard $(HOME)/comfy/ComfyUI/main.py $(abspath ../..)/main.py)))
export COMFYUI_PATH
COMFYUI_REQUIREMENTS := $(if $(COMFYUI_PATH),$(wildcard $(COMFYUI_PATH)/requirements.txt))

.PHONY: demo test check format clean
.DELETE_ON_ERROR:

demo: $(VENV)/pack
	$(BIN)/python -m trainer demo

test: check $(if $(COMFYUI_REQUIREMENTS),$(VENV)/comfyui)
	$(BIN)/python -m pytest -ra $(PYTEST)

check: $(VENV)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

format: $(VENV)/tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache

# Each of the files below marks one finished step of the set-up, so that the next `make` starts at once.

$(VENV)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 10) else f"Python {v[0]}.{v[1]} is too old: make PYTHON=python3.12 (3.10 or newer)")'
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV) || { echo "Debian and Ubuntu: apt install python3-venv"; exit 1; }
	touch $@

# torch.txt holds the torch that was installed: no later step may move it.
$(VENV)/torch.txt: $(VENV)/python
	@echo "Installing $(TORCH): the largest download, a few minutes"
	$(PIP) install --quiet $(TORCH)
	$(PIP) freeze | grep -E '^torch(vision|audio)?==' > $@

$(VENV)/pack: requirements.txt $(VENV)/torch.txt
	$(PIP) install -qq -r requirements.txt -c $(VENV)/torch.txt
	touch $@

$(VENV)/tools: tests/requirements.txt $(VENV)/pack
	$(PIP) install -qq -r tests/requirements.txt -c $(VENV)/torch.txt
	touch $@

# ComfyUI's own needs; the constraint keeps the torch that is there.
$(VENV)/comfyui: $(COMFYUI_REQUIREMENTS) $(VENV)/pack
	$(PIP) install -qq -r "$(COMFYUI_PATH)/requirements.txt" -r requirements.txt -c $(VENV)/torch.txt
	touch $@
