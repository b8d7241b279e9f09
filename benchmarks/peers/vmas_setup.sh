#!/bin/sh
# VMAS needs PyTorch, which is large: it gets an environment of its own.
set -eu
cd "$(dirname "$0")/../.."
venv=.cache/vmas-venv
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -c 'import vmas' 2>/dev/null || "$venv/bin/python" -m pip install -qq vmas torch
