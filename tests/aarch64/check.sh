#!/usr/bin/env bash
# Another processor family: runs the golden mission on an emulated arm64 processor and compares digests; then a node there, over
# Debian's Cyclone DDS 0.10 on loopback, is seen and driven from this machine.
#
# Needs Debian's apt (as any user: nothing is installed on this machine) and network on the first run. An arm64 CPython and Cyclone
# DDS come from Debian's packages, as do emulator and cross-compiler where they are not installed; wheels and the source of Cyclone's
# Python binding come from PyPI. All of it is unpacked under .cache/aarch64.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${MICROSIM_AARCH64_CACHE:-$repository/.cache/aarch64}
host_python=${MICROSIM_PYTHON:-$repository/.venv/bin/python}
script=${1:-$repository/tests/aarch64/mission_digest.py}
sysroot=$cache/sysroot

say() { printf '[aarch64 %3ds] %s\n' "$SECONDS" "$*"; }
fail() { printf '[aarch64] %s\n' "$*" >&2; exit 1; }

# A stamp holds what its step was made from, so that a changed requirement or script remakes just that step.
made_from() { [ -f "$cache/$1.stamp" ] && [ "$(cat "$cache/$1.stamp")" = "$2" ]; }
mark() { printf '%s' "$2" >"$cache/$1.stamp"; }

# apt with its own state: an empty dpkg status makes it resolve the whole closure, and the machine's own is never touched.
private_apt() {
  local architecture=$1; shift
  local state=$cache/apt-$architecture
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  : >>"$state/status"
  apt-get -qq \
    -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
    -o APT::Install-Recommends=false -o APT::Sandbox::User= -o Debug::NoLocking=true \
    -o Dir::State="$state" -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" \
    -o Dir::Cache="$state" -o Dir::Cache::archives="$state/archives" \
    -o Acquire::Retries=3 "$@"
}

unpack() { # ARCHITECTURE TARGET PACKAGE...
  local architecture=$1 target=$2; shift 2
  rm -rf "$target" "$cache/apt-$architecture/archives"
  mkdir -p "$target/usr/lib" "$target/usr/bin"
  ln -s usr/lib "$target/lib" # newer Debian packages ship only /usr/lib
  private_apt "$architecture" update >"$cache/apt.log" 2>&1 || true # other repositories may lack this architecture
  private_apt "$architecture" --yes --download-only install "$@" >>"$cache/apt.log" 2>&1 ||
    { tail -n 20 "$cache/apt.log" >&2; fail "apt could not fetch $* for $architecture (all of it: $cache/apt.log)"; }
  local package
  for package in "$cache/apt-$architecture"/archives/*.deb; do dpkg-deb --extract "$package" "$target"; done
  rm -rf "$cache/apt-$architecture"
}

emulator() {
  command -v qemu-aarch64-static && return
  if ! made_from qemu qemu-user-static; then
    say "fetching the emulator (qemu-user-static)" >&2
    unpack "$(dpkg --print-architecture)" "$cache/qemu" qemu-user-static
    find "$cache/qemu/usr/bin" -type f ! -name qemu-aarch64-static -delete
    mark qemu qemu-user-static
  fi
  echo "$cache/qemu/usr/bin/qemu-aarch64-static"
}

# The binding as docs/lookup/ros2_reference.md has users build it, but cross-compiled: emulated processes cannot start a compiler.
binding() { # VERSION OF PYTHON
  local home=$cache/cyclone source=$cache/binding-source libraries=$sysroot/usr/lib/aarch64-linux-gnu compiler
  rm -rf "$home" "$source" "$cache/binding"
  mkdir -p "$home/lib" "$home/bin" "$source" "$cache/binding"
  ln -s "$sysroot/usr/include" "$home/include"
  ln -s "$libraries/libddsc.so" "$home/lib/"
  CYCLONEDDS_HOME=$home "$host_python" -m pip download -qq --disable-pip-version-check --no-deps --no-binary :all: \
    --dest "$source" "$cyclone" || fail "pip could not fetch the source of $cyclone"
  tar --extract --strip-components 1 --directory "$source" --file "$source"/cyclonedds-*.tar.gz
  cp -r "$source/cyclonedds" "$cache/binding/"
  printf "in_wheel = False\nlibrary_path = '%s'\n" "$libraries/libddsc.so" >"$cache/binding/cyclonedds/__library__.py"
  if ! compiler=$(command -v aarch64-linux-gnu-gcc); then
    say "fetching a cross-compiler"
    unpack "$(dpkg --print-architecture)" "$cache/cross" gcc-aarch64-linux-gnu
    compiler=$cache/cross/usr/bin/aarch64-linux-gnu-gcc
  fi
  LD_LIBRARY_PATH=$cache/cross/usr/lib/$(uname -m)-linux-gnu "$compiler" --sysroot="$sysroot" -B "${compiler%gcc}" -O1 -w -shared -fPIC \
    -I "$source/clayer" -I "$sysroot/usr/include" -I "$sysroot/usr/include/python$1" "$source"/clayer/*.c \
    -L "$libraries" -lddsc -o "$cache/binding/cyclonedds/_clayer.abi3.so"
  rm -rf "$cache/cross" "$source"
}

[ -x "$host_python" ] || fail "no $host_python: run 'make aarch64', which sets it up first"
{ command -v apt-get && command -v dpkg-deb; } >/dev/null || fail "needs Debian's apt-get and dpkg-deb"
mkdir -p "$cache"
qemu=$(emulator)

packages="python3 libstdc++6 libpython3-dev cyclonedds-dev"
cyclone="cyclonedds==0.10.5" # the binding of that library
if ! made_from sysroot "$packages"; then
  say "fetching an arm64 Python from Debian"
  # shellcheck disable=SC2086
  unpack arm64 "$sysroot" $packages
  mark sysroot "$packages"
fi
guest_python=$(find "$sysroot/usr/bin" -regex '.*/python3\.[0-9]+' | sort -V | tail -n 1)
[ -x "$guest_python" ] || fail "no Python among the arm64 packages"
version=${guest_python##*python}

# Markers are looked at for the emulated machine: pip would look at this one.
requirements=$("$host_python" - <<'PYTHON'
from importlib.metadata import requires

from pip._vendor.packaging.requirements import Requirement

there = {"platform_system": "Linux", "platform_machine": "aarch64", "sys_platform": "linux", "extra": ""}
wanted = [Requirement(line) for line in requires("microsim-ros2") or ()]
print("\n".join(sorted(f"{each.name}{each.specifier}" for each in wanted if not each.marker or each.marker.evaluate(there))))
PYTHON
)
if ! made_from wheels "$version $requirements"; then
  say "fetching aarch64 wheels for Python $version from PyPI"
  rm -rf "$cache/wheels" "$cache/numba"
  platforms=(--platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64)
  printf '%s\n' "$requirements" >"$cache/requirements.txt"
  "$host_python" -m pip install -qq --disable-pip-version-check --no-compile --target "$cache/wheels" --only-binary :all: \
    --implementation cp --python-version "$version" "${platforms[@]}" --requirement "$cache/requirements.txt"
  mark wheels "$version $requirements"
fi
if ! made_from binding "$version $cyclone $sysroot"; then
  say "building Cyclone's Python binding for it"
  binding "$version"
  mark binding "$version $cyclone $sysroot"
fi

say "running $(basename "$script") on this machine ($(uname -m))"
native=$(cd "$repository" && PYTHONPATH=$repository "$host_python" "$script")
printf '%s\n' "$native"

say "running it on an emulated aarch64 with Python $version (a minute or more: everything is compiled there)"
# Its own caches: compiled kernels and bytecode of one processor family are of no use to the other.
guest=(env -i PATH=/usr/bin HOME="$cache" LANG=C.UTF-8
  PYTHONPATH="$repository:$cache/binding:$cache/wheels" PYTHONPYCACHEPREFIX="$cache/bytecode" NUMBA_CACHE_DIR="$cache/numba" NUMBA_NUM_THREADS=1
  "$qemu" -L "$sysroot" "$guest_python" -s)
emulated=$(cd "$repository" && "${guest[@]}" "$script")
printf '%s\n' "$emulated"

say "comparing"
"$host_python" "$repository/tests/aarch64/compare.py" "$native" "$emulated"

say "an emulated node on loopback, seen and driven from this machine"
(cd "$repository" && PYTHONPATH=$repository "$host_python" tests/aarch64/node_check.py "${guest[@]}")
say "done"
