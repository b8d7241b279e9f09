"""Compare the digests that two processors printed with each other and with the golden ones."""

import json
import sys
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "digests.json"


def differences(native: dict[str, str], emulated: dict[str, str], golden: dict[str, str]) -> list[str]:
    """One line for each digest that is not the same everywhere. What has no golden one is compared all the same."""
    found = []
    for name in sorted(native | emulated):
        here, there = native.get(name), emulated.get(name)
        if here != there:
            found.append(f"{name} depends on the processor: native {here}, emulated {there}")
        elif here != golden.get(name, here):
            found.append(f"{name} is the same on both processors, {here}, but the golden one is {golden[name]}")
    return found


def main(native_line: str, emulated_line: str) -> int:
    native, emulated = json.loads(native_line), json.loads(emulated_line)
    if emulated["machine"] != "aarch64":
        print(f"the emulated run was on {emulated['machine']}, not aarch64: this proves nothing", file=sys.stderr)
        return 1
    found = differences(native["digests"], emulated["digests"], json.loads(GOLDEN.read_text(encoding="utf-8")))
    for line in found:
        print(f"DIFFERENT {line}", file=sys.stderr)
    if not found:
        print(f"same bytes on {native['machine']} and {emulated['machine']}: {', '.join(sorted(native['digests']))}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
