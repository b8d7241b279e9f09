#!/usr/bin/env bash
# Builds an sdist and a wheel into dist/, installs each into an empty environment and runs a simulation there.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-$repository/.venv/bin/python}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset PYTHONPATH AMENT_PREFIX_PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1

git -C "$repository" archive --format=tar HEAD | (mkdir "$scratch/source" && tar --extract --directory "$scratch/source")
"$python" -m venv "$scratch/build"
"$scratch/build/bin/pip" install -q setuptools wheel
rm -rf "$repository/dist"
(cd "$scratch/source" && "$scratch/build/bin/python" setup.py -q sdist --dist-dir "$repository/dist")
"$scratch/build/bin/pip" wheel -q --no-deps --wheel-dir "$repository/dist" "$repository"/dist/*.tar.gz # from the sdist, so that it is complete
for file in "$repository"/dist/*; do
  rm -rf "$scratch/venv" && "$python" -m venv "$scratch/venv"
  "$scratch/venv/bin/pip" install -q "$file"
  (cd / && NUMBA_DISABLE_JIT=1 "$scratch/venv/bin/microsim" run flat --duration 0.1 --headless --digest)
  echo "works: ${file#"$repository"/}"
done
