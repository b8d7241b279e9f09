"""Draws every picture of the documentation again: `make pictures`, or `python -m docs.draw lidar editor` for some.

Each script in this folder draws its own. Training curves need the results of `python -m benchmarks.time_to_solve`
and are drawn by hand: see `training_picture.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BY_HAND = {"training_picture.py"}


def scripts(names: list[str]) -> list[Path]:
    found = [each for each in sorted(HERE.glob("[a-z]*.py")) if each.name not in BY_HAND]
    return [each for each in found if not names or any(name in each.stem for name in names)]


def main() -> int:
    failed = []
    for script in scripts(sys.argv[1:]):
        print(script.relative_to(ROOT), flush=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if subprocess.run([sys.executable, script], cwd=ROOT, env=environment, check=False).returncode:
            failed.append(script.name)
    print(f"failed: {', '.join(failed)}" if failed else "look at every picture: git diff --stat docs/pictures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
