#!/bin/sh
# The peers that need PyTorch, in the environment of tests/learning: VMAS, gsplat, and gym-pybullet-drones, which is not
# on PyPI (GYM_PYBULLET_DRONES names another place for it, such as a clone).
set -eu
cd "$(dirname "$0")/../.."
python=$(tests/learning/setup.sh)
"$python" -m pip install -qq vmas==1.5.2 gsplat==1.5.3 pybullet==3.2.7 transforms3d control
"$python" -m pip install -qq --no-deps \
  "${GYM_PYBULLET_DRONES:-git+https://github.com/utiasDSL/gym-pybullet-drones@90b178aba69b09085dd70e7a1e88bb58ca00b4c9}"
"$python" -c 'import vmas, gsplat; from gym_pybullet_drones.envs.HoverAviary import HoverAviary'
