#!/usr/bin/env bash
# Installs the tree in the four ways a user may (pip from an sdist, pip -e, colcon, colcon --symlink-install) into scratch folders, and tries each.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-$repository/.venv/bin/python}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
workspace=$scratch/ws
source_tree=$workspace/src/microsim
venv=$scratch/venv
# What a user has: no repository on the path, and bytecode and kernels cached in their own places.
unset PYTHONPATH AMENT_PREFIX_PATH PYTHONDONTWRITEBYTECODE

say() { printf '[packaging %3ds] %s\n' "$SECONDS" "$*"; }
fail() { printf '[packaging] %s\n' "$*" >&2; exit 1; }
pip() { "$venv/bin/python" -m pip -qq --disable-pip-version-check "$@"; }

copy_tree() { # as git sees it, changes of today included
  rm -rf "$source_tree" && mkdir -p "$source_tree"
  (cd "$repository" && git ls-files --cached --others --exclude-standard -z |
    while IFS= read -r -d '' file; do [ -e "$file" ] && printf '%s\0' "$file"; done |
    tar --null --files-from - --create) | tar --extract --directory "$source_tree"
}

has_all_data() { # FOLDER: every file of the data folders is there
  local file missing=0
  while IFS= read -r file; do
    [ -e "$1/$file" ] || { echo "missing: $1/$file" >&2; missing=1; }
  done < <(cd "$source_tree" && find launch rviz urdf scenarios missions worlds -type f ! -name '.*' ! -path '*/__pycache__/*' 2>/dev/null)
  return $missing
}

works() { # COMMAND, away from every checkout
  local digest
  cd /
  "$1" --help >/dev/null || fail "$1 --help does not work"
  "$1" list >"$scratch/list" || fail "$1 list does not work"
  grep -q default "$scratch/list" || fail "$1 does not find the shipped scenarios: $(cat "$scratch/list")"
  digest=$("$1" run default --duration 0 --headless --json | grep -o '"digest": "[0-9a-f]*"') || fail "$1 run does not work"
  [ "$digest" = "${first_digest:=$digest}" ] || fail "$1 gives $digest, another installation gave $first_digest"
  "$1" validate oval worlds/minimal_test >/dev/null || fail "$1 does not find the shipped worlds, or finds fault with them"
  "$(dirname "$1")/sim_rover" --transport memory --duration 0.1 --digest --ros-args -p publish_clock:=true >/dev/null || fail "sim_rover does not work beside $1"
  "$(dirname "$1")/robot_simulator" --transport memory --duration 0.1 --digest --ros-args -p publish_clock:=true >/dev/null || fail "robot_simulator does not work beside $1"
  cd "$workspace"
}

"$python" -m venv "$venv"
copy_tree

say "pip install of an sdist"
pip install setuptools
(cd "$source_tree" && "$venv/bin/python" setup.py -q sdist --dist-dir "$scratch/dist")
pip install "$scratch"/dist/*.tar.gz
works "$venv/bin/microsim"
has_all_data "$venv/share/microsim"
[ -e "$venv/share/ament_index/resource_index/packages/microsim" ] || fail "no ament marker"
pip check

say "the package of a stranger, beside it"
"$venv/bin/python" "$repository/tests/packaging/stranger.py" "$repository/docs" "$scratch/stranger"
pip install "$scratch/stranger"
(
  mkdir "$scratch/yard" && cd "$scratch/yard"
  echo "robots: {rover: {sensors: {trip: {type: trip_meter, hz: 5}}}}" >yard.yaml
  [ "$("$venv/bin/microsim" greet)" = "hello, robots" ] || fail "a stranger's command is not found"
  "$venv/bin/microsim" run yard.yaml --duration 0.5 --rtf 0 --headless --quiet --trace trace.csv --transport tape || fail "a stranger's attachment or transport is not found"
  grep -q '^30,rover,' trace.csv && grep -q '^/rover/trip ' tape.txt || fail "a stranger's sensor, attachment or transport did not do its work"
)
pip uninstall --yes stranger
pip uninstall --yes microsim-ros2

say "pip install --editable ."
pip install --editable "$source_tree"
works "$venv/bin/microsim"
pip uninstall --yes microsim-ros2

pip install colcon-common-extensions pytest hypothesis
copy_tree
for option in "" --symlink-install; do
  say "colcon build $option"
  (cd "$workspace" && rm -rf build install log
   PATH=$venv/bin:$PATH
   [ "$(colcon list --names-only)" = microsim ] || fail "colcon finds other packages: $(colcon list --names-only)"
   # shellcheck disable=SC2086
   colcon --log-level error build --event-handlers console_direct- console_stderr- $option)
  prefix=$workspace/install/microsim
  for executable in microsim sim_rover robot_simulator; do
    [ -x "$prefix/lib/microsim/$executable" ] || fail "ros2 run would not find lib/microsim/$executable"
  done
  [ ! -e "$prefix/bin/microsim" ] || fail "a second script in bin/"
  has_all_data "$prefix/share/microsim"
  [ -e "$prefix/share/ament_index/resource_index/packages/microsim" ] || fail "no ament marker"
  [ -e "$prefix/share/microsim/package.xml" ] || fail "no package.xml"
  # shellcheck disable=SC1091
  (set +u; source "$workspace/install/setup.bash"; set -u; works "$prefix/lib/microsim/microsim")
done

say "colcon test"
(cd "$workspace"
 PATH=$venv/bin:$PATH
 # shellcheck disable=SC1091
 set +u; source "$workspace/install/setup.bash"; set -u
 # three of the files that it runs by default, which take seconds
 colcon --log-level error test --event-handlers console_direct- console_stderr- \
   --pytest-args tests/unit/messages/test_wire.py tests/unit/engine/test_timekeeper.py tests/parts/ros2/test_transport_memory.py
 colcon test-result --verbose >"$scratch/results" || { cat "$scratch/results" >&2; fail "colcon test failed"; }
 grep -Eq '^Summary: [1-9][0-9]+ tests, 0 errors, 0 failures' "$scratch/results" || fail "colcon test ran something else: $(cat "$scratch/results")"
 cat "$scratch/results")
say "pip and colcon both install, run and test"
