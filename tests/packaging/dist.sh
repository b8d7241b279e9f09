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
wheel=$(ls "$repository"/dist/*.whl)

# For this kind of machine another wheel, with compiled kernels: its first run compiles nothing.
"$python" -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q "$wheel[view]"
(cd "$scratch" && venv/bin/python "$repository/tests/packaging/prebuilt.py" kernels)
"$scratch/build/bin/wheel" unpack --dest "$scratch/unpacked" "$wheel" >/dev/null
cp -r "$scratch/kernels" "$scratch"/unpacked/*/microsim/kernels
mkdir "$scratch/packed"
"$scratch/build/bin/wheel" pack --dest-dir "$scratch/packed" "$scratch"/unpacked/* >/dev/null
"$scratch/build/bin/wheel" tags --remove --python-tag "$("$python" -c 'import sys; print("cp{}{}".format(*sys.version_info))')" \
  --platform-tag "$("$python" -c 'import platform; print(f"manylinux_2_17_{platform.machine()}")')" "$scratch"/packed/*.whl >/dev/null
cp "$scratch"/packed/*.whl "$repository/dist"

for file in "$repository"/dist/*; do
  rm -rf "$scratch/venv" "$scratch/cache" && "$python" -m venv "$scratch/venv"
  "$scratch/venv/bin/pip" install -q "$file"
  compiled=1
  case $file in *manylinux*) compiled=0 ;; esac
  digest=$(cd / && NUMBA_DISABLE_JIT=$compiled NUMBA_CACHE_DIR="$scratch/cache" "$scratch/venv/bin/microsim" run flat --rtf 0 --duration 0.1 --headless --digest)
  [ "${expected:=$digest}" = "$digest" ] || { echo "$file gives other bytes" >&2 && exit 1; }
  [ "$compiled" = 1 ] || [ -z "$(find "$scratch/cache" -name '*.nbc')" ] || { echo "$file compiled kernels" >&2 && exit 1; }
  echo "works: ${file#"$repository"/}, $(du -h "$file" | cut -f 1)"
done
