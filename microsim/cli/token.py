"""`microsim replay --token`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from microsim.cli.progress import Progress
from microsim.cli.quiet import note, tell
from microsim.cli.run import Interrupts
from microsim.errors import UsageError
from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.sweep.metrics import Value
    from microsim.sweep.tokens import Replayable


@dataclass(frozen=True)
class Wishes:
    token: str
    scenario: str | None
    mission: str | None
    rtf: float
    at: Fraction | None
    save_state: Path | None
    record: Path | None
    json: bool = False


def replay(wishes: Wishes, others: Sequence[str]) -> int:
    """Fly the run of the token, and tell every metric of it. The exit code."""
    from microsim.sweep.tokens import from_token

    if others:
        raise UsageError(f"--token says which run it is: leave out {', '.join(others)}")
    again = from_token(wishes.token, wishes.scenario, wishes.mission)
    if again.token.version != __version__:
        note(f"made by microsim {again.token.version}, replayed by {__version__}")
    code, values = _flown(again, wishes)
    sim = again.sim
    if wishes.json:
        facts = {"ticks": sim.tick, "sim_s": sim.time_ns / 1e9, "digest": sim.digest(), "metrics": values}
        print(json.dumps(facts, ensure_ascii=False))
        return code
    width = max(map(len, values))
    for name, value in values.items():
        tell(f"  {name:{width}}  {_said(value)}")
    tell(f"replayed {sim.tick:,} ticks, {sim.time_ns / 1e9:.3f} s, digest {sim.digest()}")
    return code


def _flown(again: Replayable, wishes: Wishes) -> tuple[int, dict[str, Value]]:
    from microsim.recording.recorder import Recorder
    from microsim.runner import Runner
    from microsim.sweep.run_one import ticks_of

    measured, sim = again.metric_run(), again.sim
    end = ticks_of(sim, measured.pilot, again.token.duration) if wishes.at is None else sim.clock.ticks_in(wishes.at)
    with Interrupts() as interrupts:
        runner = interrupts.runner = Runner(sim, wishes.rtf, measured)
        recorder = None
        if wishes.record is not None:
            recorder = Recorder(wishes.record, sim)
            recorder.attach(runner)
        progress = Progress(runner, end)
        runner.watchers.append(progress.watcher())
        runner.run(end)
        progress.end()
    code = 0
    if recorder is not None:
        recorder.close()
        code = 1 if recorder.error else 0
        if code:
            print(f"microsim: {recorder.error}", file=sys.stderr)
        else:
            note(f"recorded into {recorder.folder}")
    if wishes.save_state is not None:
        from microsim.recording.state_file import save_state

        save_state(wishes.save_state, sim.snapshot())
        note(f"state of tick {sim.tick:,} in {wishes.save_state}")
    return code, measured.values()


def _said(value: Value) -> str:
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
