#!/usr/bin/env bash
# Makes .cache/rclpy-venv: real rclpy from PyPI, and this checkout of MicroSim, for the tests in this folder.
# Quick when it is there already. Status 3 and a sentence when it cannot be had here. The last line is the Python to use.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
venv=$repository/.cache/rclpy-venv
built=$repository/.cache/rclpy-interfaces # by interfaces.py: packages that PyPI lacks

hash_of() { (cd "$repository" && for file in "$@"; do [ ! -f "$file" ] || cat "$file"; done | sha256sum); }
venv_from=$(hash_of tests/interop/{requirements.txt,setup.sh} setup.py setup.cfg microsim/version.py)
built_from="$venv_from $(hash_of tests/interop/interfaces.py microsim/messages/definitions/*/*/* interfaces/microsim_interfaces/srv/*.srv)"

has_venv() { [ "$(cat "$venv/.made-from" 2>/dev/null)" = "$venv_from" ]; }
has_built() { [ "$(cat "$built/made-from" 2>/dev/null)" = "$built_from" ]; }
cannot() { echo "no rclpy for the interop tests: $*" >&2; exit 3; }
python311() { # the wheels are for CPython 3.11 only
  local candidate
  for candidate in ${PYTHON:-} python3.11 "$repository/.venv/bin/python" python3; do
    "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && echo "$candidate" && return
  done
  return 1
}

if ! { has_venv && has_built; }; then
  mkdir -p "$repository/.cache"
  exec 9>"$repository/.cache/rclpy-venv.lock"
  flock 9 # tests run in several processes
fi
if ! has_venv; then
  [ "$(uname -sm)" = "Linux x86_64" ] || cannot "its wheels are for Linux x86_64, and this is $(uname -sm)"
  python=$(python311) || cannot "its wheels are for CPython 3.11 (Debian: apt install python3.11 python3.11-venv)"
  echo "Installing rclpy into $venv (a minute, only once) ..." >&2
  "$venv/bin/python" -c '' 2>/dev/null || "$python" -m venv --clear "$venv"
  packages=(--quiet --requirement "$here/requirements.txt" --editable "$repository")
  "$repository/.venv/bin/uv" pip install --python "$venv/bin/python" "${packages[@]}" 2>/dev/null || # quicker, where it works
    "$venv/bin/python" -m pip install --disable-pip-version-check "${packages[@]}" >&2 ||
    cannot "pip could not install tests/interop/requirements.txt (its words are above)"
  "$venv/bin/python" -c 'import rclpy, microsim' || cannot "it does not import"
  echo "$venv_from" >"$venv/.made-from"
fi
if ! has_built; then
  echo "Building tf2_msgs and others that PyPI lacks (a minute, only once) ..." >&2
  rm -rf "$built"
  mkdir -p "$built"
  # without a compiler the tests that need them are skipped: no reason to fail here
  nice "$venv/bin/python" "$here/interfaces.py" >"$built/log" 2>&1 || { rm -rf "$built/python"; tail -n 3 "$built/log" >&2; }
  echo "$built_from" >"$built/made-from"
fi
echo "$venv/bin/python"
