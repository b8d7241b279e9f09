#!/bin/sh
# VMAS and gsplat need PyTorch, which is large: they get an environment of their own.
set -eu
cd "$(dirname "$0")/../.."
venv=.cache/torch-venv
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -c 'import vmas, gsplat' 2>/dev/null || "$venv/bin/python" -m pip install -qq vmas gsplat==1.5.3 torch
