#!/usr/bin/env bash
# Makes .cache/learning-venv for the tests in this folder: torch and the libraries of the adapters, on top of .venv, whose
# packages it sees. Quick when it is there already. The last line is the Python to use.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
venv=$repository/.cache/learning-venv
below=$("$repository/.venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
made_from=$(cat "$here/requirements.txt" "$here/setup.sh" <(echo "$below") | sha256sum)

if [ "$(cat "$venv/.made-from" 2>/dev/null)" != "$made_from" ]; then
  echo "Installing torch and others into $venv (a minute, only once) ..." >&2
  "$repository/.venv/bin/python" -m venv --clear "$venv"
  echo "$below" >"$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/below.pth"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-compile --requirement "$here/requirements.txt" >&2
  "$venv/bin/python" -c 'import torch, stable_baselines3, torchrl, skrl, onnx, ray'
  echo "$made_from" >"$venv/.made-from"
fi
echo "$venv/bin/python"
