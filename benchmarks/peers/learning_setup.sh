#!/bin/sh
# The peers of benchmarks/learning.py: torch, Stable-Baselines3, VMAS and gym-pybullet-drones (from its repository).
set -eu
cd "$(dirname "$0")/../.."
venv=.cache/learning-bench-venv
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install -qq torch stable-baselines3 vmas pybullet -e '.[rl]'
"$venv/bin/python" -c 'import gym_pybullet_drones' 2>/dev/null ||
  "$venv/bin/python" -m pip install -qq --no-deps transforms3d "setuptools<81" 'git+https://github.com/utiasDSL/gym-pybullet-drones'
