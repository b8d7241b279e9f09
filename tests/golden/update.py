"""Write the digests of today's missions: `python tests/golden/update.py`. Say why they moved in CHANGELOG.md."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILE = HERE / "digests.json"
sys.path[:0] = [str(HERE), str(HERE.parents[1])]


def main() -> None:
    from mission import all_digests

    before = json.loads(FILE.read_text(encoding="utf-8"))
    after = before | all_digests()
    FILE.write_text(json.dumps(after, indent=2) + "\n", encoding="utf-8")
    moved = [name for name in after if after[name] != before.get(name)]
    print(f"moved: {', '.join(moved)}" if moved else "nothing moved")


if __name__ == "__main__":
    main()
