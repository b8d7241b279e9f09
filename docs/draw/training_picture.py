"""The learning curves in docs/do/training.md, from the files of `python -m benchmarks.time_to_solve`.

python docs/draw/training_picture.py benchmarks/results/training docs/pictures/training_curves.png "PPO on two cores"
"""

import json
import sys
from pathlib import Path

from microsim.parts.learning.learning_curve import Progress, draw

folder, picture, title = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
curves = {}
for file in sorted(folder.glob("*_cpu_*.json")):
    run = json.loads(file.read_text(encoding="utf-8"))
    curves[f"{run['task']}, seed {run['seed']}"] = [Progress(**row) for row in run["curve"]]
draw(curves, f"{title}: episodes that succeed", picture)
