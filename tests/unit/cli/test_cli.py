"""The command line as a shell sees it: exit codes, what goes to stdout and what to stderr, signals, pipes."""

import contextlib
import csv
import errno
import inspect
import itertools
import json
import os
import pty
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import microsim
from microsim.cli import terminal
from microsim.cli.terminal import RunProgress
from microsim.runner import Runner, Watcher
from tests.cli_support import ROOT, environment, run_from_nothing
from tests.cli_support import run_microsim as cli
from tests.forked_python import forked_python
from tests.support import SleepClock

FAST = ("--rtf", "0", "--headless")


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "microsim", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(PYTHONUNBUFFERED="1"),
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The words on stderr of a command that found its input wrong, and did nothing else."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", done.stderr).split())


# ---- run ----------------------------------------------------------------------------------------------------------


def test_json_is_one_line_with_the_facts_of_the_run() -> None:
    done = cli("run", "flat", "--seed", "-7", "--duration", "2", "--rtf", "0", "--json", "--autopilot")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    facts = json.loads(done.stdout)
    assert (facts["scenario"], facts["seed"], facts["version"]) == ("flat", -7, microsim.__version__)
    assert (facts["ticks"], facts["sim_s"], facts["ignored"]) == (120, 2.0, {})
    assert facts["wall_s"] > 0.0
    assert facts["rtf"] > 1.0
    assert re.fullmatch("[0-9a-f]{64}", facts["digest"])
    (out, back) = facts["radio"]
    assert (out["from"], out["to"], out["sent"]) == ("drone", "rover", 2)
    assert set(back) == {"from", "to", "sent", "delivered", "dropped", "overflowed", "queued", "latency_ms_mean"}


def test_the_digest_is_that_of_the_python_api_and_stands_alone_on_the_last_line() -> None:
    done = cli("run", "--duration", "1", "--digest", *FAST)
    sim = microsim.Simulation("default")
    sim.step(60)
    assert done.stdout.splitlines()[-1] == sim.digest()
    assert "60 ticks" in done.stdout
    assert done.stderr == ""


def test_a_duration_of_zero_starts_sends_tick_0_and_ends() -> None:
    facts = json.loads(cli("run", "--duration", "0", "--json").stdout)
    sim = microsim.Simulation("default")
    assert (facts["ticks"], facts["messages"]) == (0, len(sim.step(0)))
    assert facts["digest"] == sim.digest()


def test_a_file_and_its_copy_by_name_give_the_same_run(tmp_path: Path) -> None:
    copy = tmp_path / "mine.yaml"
    copy.write_text((ROOT / "scenarios" / "flat.yaml").read_text())
    runs = [cli("run", name, "--duration", "0.5", "--json", *FAST, cwd=tmp_path) for name in ("flat", "mine.yaml")]
    assert len({json.loads(done.stdout)["digest"] for done in runs}) == 1


def test_the_demo_ends_with_hints() -> None:
    done = cli("run", "--autopilot", "--duration", "1", *FAST)
    assert done.returncode == 0
    assert hints_in(done.stdout)[0] == ["make", "demo"]
    assert hints_in(done.stdout)[-1][-1] == "list"


def hints_in(output: str) -> list[list[str]]:
    """The commands after "What next?", without the comments that describe them."""
    lines = output.partition("What next?")[2].splitlines()
    return [shlex.split(line) for line in lines if line.strip() and not line.strip().startswith("#")]


def test_the_hints_name_the_recording_and_can_be_pasted(tmp_path: Path) -> None:
    done = cli("run", "flat", "--duration", "1", "--record", str(tmp_path / "my flight"), *FAST)
    hints = hints_in(done.stdout)
    assert hints[0][-3:] == ["replay", f"{tmp_path}/my flight", "--open"]
    assert hints[-1][-3:-1] == ["bag", "info"]
    pasted = subprocess.run(hints[-1], capture_output=True, cwd=ROOT, env=environment(), timeout=60, check=False)
    assert pasted.returncode == 0
    assert "What next?" not in cli("run", "flat", "--duration", "1", *FAST).stdout


def test_a_run_of_some_seconds_shows_progress_on_stderr_only() -> None:
    began = time.monotonic()
    done = cli("run", "flat", "--duration", "3.2", "--headless")
    lines = done.stderr.splitlines()
    shown = [line for line in lines if re.search(r"\d+ % .* s simulated, [\d.]+ × real time, \d+ s left", line)]
    assert 2 <= len(shown) <= time.monotonic() - began + 1.0
    assert not [line for line in lines if line not in shown and "tick" not in line]  # a busy machine is warned about
    assert "left" not in done.stdout


def progress_lines(events: dict[float, Callable[[Runner], None]]) -> list[str]:
    """What a run of ten seconds in real time says each second, with something done to it at given times."""
    runner = Runner(microsim.Simulation("flat"), 1.0, clock=SleepClock())
    progress = RunProgress(runner, 600)
    lines: list[str] = []
    runner.watchers.append(Watcher(1.0, lambda: lines.append(progress.line())))
    for at, event in events.items():
        runner.watchers.append(Watcher(at, once(event, runner)))
    runner.run(600)
    return lines


def once(event: Callable[[Runner], None], runner: Runner) -> Callable[[], None]:
    left = [event]
    return lambda: left.pop()(runner) if left else None


def seconds_left(lines: list[str]) -> list[int]:
    return [int(found[1]) for line in lines if (found := re.search(r", (\d+) s left$", line))]


def test_progress_counts_down_also_after_a_reset() -> None:
    def reset(runner: Runner) -> None:
        runner.sim.reset(None)
        runner.restart(runner.sim)

    lines = progress_lines({7.25: reset})
    assert len(lines) == 17
    left = seconds_left(lines)
    assert len(left) == len(lines)
    assert left[:7] == [9, 8, 7, 6, 5, 4, 3]
    assert left[7:] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


def test_the_time_left_follows_the_recent_pace_and_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds to start workers, then one run a second."""
    now = 0.0
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now)
    left, shown = terminal.TimeLeft(), {}
    for done in range(101):
        now = 10.0 + done
        left.update(done)
        shown[done] = left.words(done, 100)
    assert shown[2] == ""
    assert shown[20] == ", about 1 min left"  # 80 s, where the mean since the start gives 120 s
    assert shown[50] == ", about 50 s left"
    assert shown[94] == ", about 6 s left"
    assert shown[100] == ""
    assert [terminal.rounded_duration(s) for s in (0.2, 43, 100, 5000)] == ["1 s", "45 s", "2 min", "1 h 20 min"]


def test_a_pause_is_shown_and_does_not_make_the_rest_seem_slow() -> None:
    lines = progress_lines({3.5: lambda runner: runner.pause(True), 60.0: lambda runner: runner.pause(False)})
    assert all(line.endswith("; paused") for line in lines[3:59])
    assert max(seconds_left(lines)) == 9
    assert seconds_left(lines[60:])[0] in (5, 6)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_run_with_a_summary(number: signal.Signals) -> None:
    process = start("run", "flat", "--headless", "--digest")
    assert process.stderr is not None
    assert "s simulated" in process.stderr.readline()  # it is running now
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "flat, seed" in out
    assert re.fullmatch("[0-9a-f]{64}", out.splitlines()[-1])
    assert "Traceback" not in err


def test_an_interrupt_before_the_first_tick_is_quiet_too() -> None:
    script = (
        "import os, signal, sys; from microsim.cli import main; import microsim.scenario\n"
        "def interrupted(source): os.kill(os.getpid(), signal.SIGTERM); __import__('time').sleep(5)\n"
        "microsim.scenario.load_scenario = interrupted\n"
        "sys.argv = ['microsim', 'run']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.strip() == "microsim: stopped before the first tick"


def test_a_terminal_gets_the_dashboard_and_then_the_summary() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "microsim", "run", "--autopilot", "--duration", "2"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
        env=environment(TERM="xterm-256color", COLUMNS="100", LINES="30"),
    ) as process:
        os.close(theirs)
        shown = read_all(ours)
    assert process.returncode == 0
    dashboard, _, after = shown.partition("\x1b[?1049l")
    assert "map" in dashboard
    assert "radio" in dashboard
    assert "120 ticks" in after
    assert "What next?" in after


def test_keys_pause_step_drive_and_end_a_run_in_a_terminal() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "microsim", "run", "flat", "--transport", "none"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, start_new_session=True,
        env=environment(TERM="xterm-256color", COLUMNS="100", LINES="30"),
    ) as process:  # fmt: skip
        os.close(theirs)
        read_until(ours, "drive drone")
        os.write(ours, b" ")
        read_until(ours, "paused")
        os.write(ours, b". \t\x1b[A")  # a step, resume, the rover, forwards
        read_until(ours, "driven by keys")
        os.write(ours, b"?")
        read_until(ours, "another robot")
        os.write(ours, b"q")
        shown = read_all(ours)
    assert process.returncode == 0
    assert "simulated" in shown.partition("\x1b[?1049l")[2]


def read_until(terminal: int, words: str) -> None:
    """The screen's text comes in pieces, with colours between them."""
    shown, ends = "", time.monotonic() + 60.0
    while words not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown):
        assert time.monotonic() < ends, shown[-2000:]
        shown += os.read(terminal, 65536).decode("utf-8", "replace")


def read_all(terminal: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux: the other side has closed
            break
        if not part:
            break
        parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode()


def radio_facts(links: int) -> list[dict[str, Any]]:
    counts = {"sent": 3, "delivered": 2, "dropped": 1, "overflowed": 0, "queued": 0, "latency_ms_mean": 40.0}
    return [{"from": f"r{index}", "to": "base", **counts} for index in range(links)]


@pytest.mark.parametrize(("links", "shown", "last"), [(10, 10, "r9 → base"), (13, 11, "… and 3 more links: --json")])
def test_the_summary_says_how_many_radio_links_it_leaves_out(links: int, shown: int, last: str) -> None:
    from microsim.cli.runs import summary

    facts = {"scenario": "s", "seed": 1, "rtf": 1.0, "ticks": 60, "sim_s": 1.0, "wall_s": 1.0, "messages": 9}
    lines = summary({**facts, "radio": radio_facts(links), "ignored": {}}).splitlines()
    radio = [line for line in lines if line.startswith("  radio ")]
    assert len(radio) == shown
    assert last in radio[-1]


# ---- telemetry ------------------------------------------------------------------------------------------------------


def test_telemetry_has_a_row_a_second(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    done = cli("run", "flat", "--duration", "2.4", "--telemetry", str(file), "--json")
    assert done.returncode == 0
    rows = list(csv.DictReader(file.open()))
    assert float(rows[-1]["sim_s"]) == pytest.approx(2.4)
    times = [float(row["wall_s"]) for row in rows]  # a busy machine may need more than 2.4 s, and be late with a row
    assert times[0] > 0.7
    assert all(later - earlier > 0.7 for earlier, later in itertools.pairwise(times[:-1]))
    assert 2 <= len(rows) <= 1 + int(times[-1])


def test_telemetry_that_cannot_be_written_is_refused_before_the_start(tmp_path: Path) -> None:
    words = refused(cli("run", "--duration", "1", "--telemetry", str(tmp_path / "no" / "t.csv"), *FAST))
    assert "telemetry cannot be written" in words
    assert "No such file or directory" in words


def test_telemetry_never_overwrites_the_scenario(tmp_path: Path) -> None:
    file = tmp_path / "world.yaml"
    file.write_text("name: mine\n")
    assert "would overwrite" in refused(cli("run", str(file), "--telemetry", str(file)))
    assert file.read_text() == "name: mine\n"


def test_a_disk_that_fills_up_in_the_middle_fails_the_run(tmp_path: Path) -> None:
    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = subprocess.run(
        [sys.executable, "-m", "microsim", "run", "flat", "--telemetry", str(tmp_path / "t.csv"), "--headless"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(PYTHONDONTWRITEBYTECODE="1"),  # Python would leave cut files without an error
        timeout=60,
        preexec_fn=small_files_only,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "the run failed at tick" in done.stderr
    assert "telemetry cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


# ---- what users get wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "defualt"], "no scenario 'defualt'; did you mean 'default'? there are: default, flat"),
        (["run", "missing.yaml"], "missing.yaml: no such file"),
        (["rnu"], "Did you mean 'run'?"),
        (["run", "--sed", "3"], "--seed"),
        (["run", "--seed", "1.5"], "expected a 64-bit integer, found '1.5'"),
        (["run", "--seed", str(2**63)], "64-bit"),
        (["picture", "ovall"], "no scenario or demo 'ovall'; did you mean 'oval'?"),
        (["sweep", "missing.yaml"], "missing.yaml: no such file"),
        (
            ["run", "--duration", "nan"],
            "expected simulated seconds from 0 to 2,147,483,647, such as 60, 2min or 500ms, found 'nan'",
        ),
        (["run", "--duration", "-1"], "found '-1'"),
        (["run", "--duration", "inf"], "found 'inf'"),
        (["run", "--duration", "1e300"], "found '1e300'"),
        (["run", "--duration", "ten"], "found 'ten'"),
        (["run", "--rtf", "nan"], "expected 0 (as fast as possible) or a factor from 0.001 to 100,000, found 'nan'"),
        (["run", "--rtf", "-1"], "found '-1'"),
        (["run", "--rtf", "1e-9"], "found '1e-9'"),
        (["run", "--rtf", "1e9"], "found '1e9'"),
        (["run", "default", "flat"], "unexpected extra argument"),
        (["validate"], "Missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_answered_with_what_to_do(arguments: list[str], words: str) -> None:
    assert words in refused(cli(*arguments))


def test_every_problem_of_a_scenario_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("seeed: 3\nphysics_hz: -1\n")
    words = refused(cli("run", str(file)))
    assert "2 problems" in words
    assert f"{file}:1:1" in words
    assert f"{file}:2:13" in words
    assert "did you mean 'seed'" in words


@pytest.mark.parametrize(
    ("name", "suggested"), [("maps.yaml", "map.yaml"), ("b.yaml", None), ("hills.yaml", None), ("mop.yml", None)]
)
def test_a_missing_file_is_corrected_to_similar_names_only(name: str, suggested: str | None, tmp_path: Path) -> None:
    for each in ("map.yaml", "a.yaml", "walls.yaml"):
        (tmp_path / each).write_text("name: mine\n")
    hint = "" if suggested is None else f"; did you mean '{suggested}'?"
    assert refused(cli("run", name, cwd=tmp_path)) == f"microsim: {name}: no such file{hint}"


@pytest.mark.parametrize(
    "command",
    [
        "run flat --duration 1 --rtf 0 --record /proc/here/x",
        "run flat --duration 1 --rtf 0 --telemetry /proc/x.csv",
        "run flat --duration 1 --rtf 0 --history 1s",
        "sweep flat --seeds 0..1 --duration 1 --jobs 1 --out /proc/x.csv",
        "shot flat --out /proc/x.png",
        "bundle new /proc/x",
        "bundle tf oval -o /proc/x.json",
        "bundle pack minimal_test /proc/x.zip",
    ],
)
def test_a_path_that_cannot_be_written_is_wrong_input_whatever_the_command(command: str) -> None:
    words = refused(cli(*command.split(), cwd=Path("/proc")))
    assert "No such file or directory" in words


# ---- validate, schema, list, help -----------------------------------------------------------------------------------


def test_validate_names_the_good_and_every_problem_of_the_bad(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("seeed: 3\nphysics_hz: -1\n")
    done = cli("validate", "default", str(bad), "nowhere.yaml", "flat")
    assert done.returncode == 2
    assert [line.split() for line in done.stdout.splitlines()] == [["ok", "default"], ["ok", "flat"]]
    assert done.stderr.count("bad.yaml:") == 2
    assert "nowhere.yaml: no such file" in done.stderr


def test_validate_prints_each_result_as_soon_as_it_is_known(tmp_path: Path) -> None:
    slow = tmp_path / "slow.yaml"
    os.mkfifo(slow)
    process = start("validate", "flat", str(slow))
    assert process.stdout is not None
    assert process.stdout.readline() == " ok  flat\n"  # while the second is still waited for
    while process.poll() is None:  # it is opened more than once: to see what kind of file it is
        with contextlib.suppress(OSError):
            writing = os.open(slow, os.O_WRONLY | os.O_NONBLOCK)
            os.write(writing, b"name: mine\n")
            os.close(writing)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    process.communicate(timeout=60)


def test_validate_is_good_when_all_are() -> None:
    done = cli("validate", *microsim_scenarios())
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(microsim_scenarios())


def microsim_scenarios() -> list[str]:
    return sorted(file.stem for file in (ROOT / "scenarios").glob("*.yaml"))


def test_validate_in_json_gives_places(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("physics_hz: -1\n")
    done = cli("validate", "flat", str(bad), "--json")
    assert (done.returncode, done.stderr) == (2, "")
    good, wrong = json.loads(done.stdout)
    assert (good["scenario"], good["ok"], good["problems"]) == ("flat", True, [])
    assert (wrong["ok"], wrong["problems"][0]["line"], wrong["problems"][0]["path"]) == (False, 1, "physics_hz")


def test_schema_is_the_schema() -> None:
    from microsim.scenario import json_schema

    assert json.loads(cli("schema").stdout) == json_schema()


def test_list_tells_what_there_is() -> None:
    done = cli("list")
    assert "  flat             Nothing in the way and no wind" in done.stdout
    for name in ("scenarios", "robots", "sensors", "generators", "drone", "rover", "camera", "random_maze"):
        assert name in done.stdout
    groups = json.loads(cli("list", "--json").stdout)
    assert list(groups["scenarios"]) == microsim_scenarios()
    assert all(groups["scenarios"].values())


@pytest.mark.parametrize("arguments", [("list",), ("--help",), ("run", "flat", "--duration", "1", "--rtf", "0")])
def test_a_terminal_without_unicode_is_served_too(arguments: tuple[str, ...]) -> None:
    done = cli(*arguments, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


def test_json_is_the_same_without_unicode(tmp_path: Path) -> None:
    scenario = tmp_path / "Zürich.yaml"
    scenario.write_text("name: Zürich\n", encoding="utf-8")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    arguments = ("run", str(scenario), "--duration", "0", "--json")
    assert json.loads(cli(*arguments, **locale).stdout)["scenario"] == "Zürich"
    assert json.loads(cli("list", "--json", PYTHONIOENCODING="ascii").stdout) == json.loads(
        cli("list", "--json").stdout
    )


@pytest.mark.parametrize("arguments", ["list", "schema", "--help", "run --duration 0 --digest"])
def test_a_reader_that_leaves_early_is_met_in_silence(arguments: str) -> None:
    command = f"{shlex.join(forked_python(environment()))} -m microsim {arguments} | head -c 1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=60, check=False
    )
    assert done.stderr == ""


def test_output_that_cannot_be_written_is_a_failure() -> None:
    command = f"{shlex.join(forked_python(environment()))} -m microsim list > /dev/full"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "microsim: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), "out of memory; use"),
        (MemoryError("Unable to allocate 8 GiB"), "out of memory: Unable to allocate 8 GiB; use"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory; use"),
        (OSError(errno.ENOMEM, "Cannot allocate memory", "a.mcap"), "out of memory: a.mcap; use"),
        (OSError(errno.ENOSPC, "No space left on device"), "the output cannot be written: No space left on device\n"),
        (OSError(errno.ENOSPC, "No space left on device", "a.mcap"), "a.mcap: No space left on device\n"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files\n"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "Resource temporarily unavailable\n"),
    ],
    ids=repr,
)
def test_what_the_system_refuses_is_named(
    error: Exception, expected: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_forget_stdout", lambda: None)
    with pytest.raises(SystemExit) as ended, terminal.guarded_output():
        raise error
    assert ended.value.code == 1
    assert capfd.readouterr().err.startswith(f"microsim: {expected}")


SCARCE = """
import resource, sys
from microsim import batch, cli, simulation
from microsim.scenario import load_scenario
load_scenario("flat")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (150 << 20),) * 2)
cli.main(*sys.argv.pop().split())
"""


@pytest.mark.parametrize("command", ["run large.yaml --duration 0 --rtf 0 -q", "picture large.yaml"])
def test_too_little_memory_is_reported_as_such(command: str, tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text("map: {size_xy_cells: [4000, 4000]}")
    variables = environment(NUMBA_DISABLE_JIT="1", OPENBLAS_NUM_THREADS="1")
    done = subprocess.run(
        [sys.executable, "-c", SCARCE, command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=variables,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.fullmatch(
        r"microsim: out of memory(: Unable to allocate .*)?; use a smaller map.*", done.stderr.strip()
    ), done.stderr


def test_without_stderr_stdout_stays_clean() -> None:
    command = f"'{sys.executable}' -m microsim run flat --duration 1.2 --json 2>&-"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=60, check=False
    )
    assert json.loads(done.stdout)["ticks"] == 72


def test_version_and_help() -> None:
    assert cli("--version").stdout == f"microsim {microsim.__version__}\n"
    top = cli("--help").stdout
    assert all(command in top for command in ("run", "validate", "schema", "list"))


def test_help_is_one_screen_of_80_columns_with_a_line_for_each_command() -> None:
    lines = cli("--help").stdout.splitlines()
    assert len(lines) <= 42
    assert [line for line in lines if len(line) > 80] == []
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(listed) == sorted({name.split()[0] for name in commands()})


@pytest.mark.parametrize(
    ("former", "now"),
    [
        (["check", "nothing"], ["determinism", "nothing"]),
        (["shot", "nothing"], ["picture", "nothing"]),
        (["evaluate", "nothing"], ["policy", "evaluate", "nothing"]),
        (["train", "nothing"], ["policy", "train", "nothing"]),
        (["policy", "none.npz", "--node"], ["policy", "run", "none.npz"]),
        (["picture", "nothing", "--demo"], ["picture", "nothing", "--autopilot"]),
    ],
    ids=" ".join,
)
def test_a_former_name_works_with_a_hint(former: list[str], now: list[str]) -> None:
    before, after = cli(*former), cli(*now)
    hint, _, rest = before.stderr.partition("\n")
    assert re.fullmatch(r"microsim: .+ is now .+; the old name will not work in the next version", hint)
    assert (before.returncode, before.stdout, rest) == (after.returncode, after.stdout, after.stderr)


def commands() -> dict[str, Any]:
    """Every command that is listed, by what one types."""
    import typer

    from microsim.cli import app

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "list_commands"):
            if not command.hidden:
                yield name, command
            return
        for word in command.list_commands(None):
            yield from below(f"{name} {word}".strip(), command.get_command(None, word))

    return dict(below("", typer.main.get_command(app)))


@pytest.mark.parametrize("name", commands())
def test_every_help_text_has_examples_and_fits_a_terminal_of_80_columns(name: str) -> None:
    text = inspect.cleandoc(commands()[name].help)
    assert "Examples:" in text
    assert f"microsim {name}" in text
    examples = [line for line in text.splitlines() if line.startswith("  ")]  # paragraphs are wrapped
    assert [line for line in examples if len(line) > 78] == []


def test_help_shows_words_in_brackets_and_no_type_of_flags() -> None:
    for name, command in commands().items():
        for parameter in command.params:
            assert "[" not in (getattr(parameter, "help", "") or ""), f"{name}: taken for markup"
            if getattr(parameter, "is_flag", False) and parameter.name != "help":
                assert parameter.metavar == "", f"{name} {parameter.name}: looks as if it took a value"
    shown = cli("determinism", "--help").stdout + cli("diff", "--help").stdout
    for text, is_shown in (("diff [OPTIONS] A B", True), ("[default: all shipped ones]", True), ("<bool>", False)):
        assert (text in shown) == is_shown


def test_compiling_is_told_once_and_only_where_something_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    import numba

    from microsim.cli.precompile import compiling
    from microsim.cli.terminal import set_quiet

    set_quiet(False)  # of a call before, in this process
    inner = numba.njit(lambda x: x + 1)
    outer = numba.njit(lambda x: 2 * inner(x))
    with compiling():
        assert (outer(1), outer(0.5)) == (4, 3.0)
    assert capsys.readouterr().err == "compiling kernels, first run only …\n"
    with compiling():
        assert outer(2) == 6
    assert capsys.readouterr().err == ""


# ---- commands of others ---------------------------------------------------------------------------------------------

GREETING = """
from typing import Annotated

import typer

from microsim.cli.command import Command


def hello(times: Annotated[int, typer.Option(min=1, help="How often.")] = 1) -> int:
    \"\"\"Greet the robots.\"\"\"
    print("hello " * times)
    return 7


COMMAND = Command(hello, panel="Greetings", position=5)
"""


def test_a_new_file_in_a_folder_of_commands_is_a_new_command(tmp_path: Path) -> None:
    folder = tmp_path / "greetings" / "commands"
    folder.mkdir(parents=True)
    (folder / "say_hello.py").write_text(GREETING)
    script = (
        f"import sys, microsim; microsim.__path__.append({str(tmp_path)!r}); from microsim.cli import main\n"
        "sys.argv = ['microsim', *sys.argv[1:]]; main()"
    )

    def changed(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*forked_python(environment()), "-c", script, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60, check=False)

    top = changed("--help").stdout
    assert top.index("Greetings") < top.index("say-hello") < top.index("Run a scenario")  # position 5 is before all
    done = changed("say-hello", "--times", "2")
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello hello \n", "")
    assert "How often." in changed("say-hello", "--help").stdout
    assert "Did you mean 'say-hello'?" in refused(changed("say-helo"))


def package_with_commands(folder: Path, **entries: str) -> str:
    """Installs a package whose entry points are these; the folder for PYTHONPATH."""
    facts = folder / "hello-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (facts / "entry_points.txt").write_text("\n".join(["[microsim.commands]", *lines, ""]))
    (folder / "hello_package.py").write_text(GREETING)
    return f"{ROOT}:{folder}"


def test_a_package_adds_a_command_through_an_entry_point(tmp_path: Path) -> None:
    paths = package_with_commands(tmp_path, hello="hello_package:COMMAND", run="hello_package:COMMAND")
    assert "Greet the robots" in cli("--help", PYTHONPATH=paths).stdout
    assert cli("hello", PYTHONPATH=paths).returncode == 7
    assert "Run a scenario" in cli("run", "--help", PYTHONPATH=paths).stdout  # ours cannot be replaced


def test_a_broken_command_of_a_package_is_named_and_harms_no_other(tmp_path: Path) -> None:
    paths = package_with_commands(tmp_path, hello="hello_package:HELLO", number="hello_package:GREETING")
    (tmp_path / "hello_package.py").write_text("GREETING = 7\n")
    done = cli("--help", PYTHONPATH=paths)
    assert done.returncode == 0
    assert "plug-in 'hello' (entry point microsim.commands, hello_package:HELLO) could not be loaded" in done.stderr
    assert "entry point microsim.commands: number: expected COMMAND = a microsim.cli.command.Command" in done.stderr
    assert cli("--version", PYTHONPATH=paths).stderr == ""


# ---- for scripts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("run", "flat", "--duration", "1", "--rtf", "0", "--autopilot"), ""),
        (("run", "flat", "--duration", "1", "--rtf", "0", "--digest"), "[0-9a-f]{64}\n"),
        (("run", "flat", "--mission", "hover", "--duration", "1", "--rtf", "0"), ""),
        (("sweep", "flat", "--duration", "1", "--seeds", "0..1", "--jobs", "1"), ""),
    ],
)
def test_quiet_says_nothing_when_all_is_well(arguments: tuple[str, ...], printed: str) -> None:
    done = cli(*arguments, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(printed, done.stdout)


def test_quiet_still_says_what_went_wrong(tmp_path: Path) -> None:
    mission = tmp_path / "far.yaml"
    mission.write_text("duration: 1\nexpect: [{robot: rover, value: x, at_least: 1000}]\n")
    done = cli("run", "flat", "--mission", str(mission), "--rtf", "0", "-q")
    assert (done.returncode, done.stdout) == (1, "")
    assert "at least 1000" in done.stderr


@pytest.mark.parametrize(("text", "ticks"), [("0.5", 30), ("500ms", 30), ("0.01min", 36), ("5e-1", 30)])
def test_a_duration_may_have_a_unit(text: str, ticks: int) -> None:
    assert json.loads(cli("run", "flat", "--duration", text, "--rtf", "0", "--json").stdout)["ticks"] == ticks


@pytest.mark.parametrize("arguments", [("list",), ("validate", "default"), ("run", "nothing"), ("run", "--help")])
def test_what_is_piped_has_no_colours(arguments: tuple[str, ...]) -> None:
    done = cli(*arguments, TERM="xterm-256color")
    assert "\x1b" not in done.stdout + done.stderr


# ---- how quick ------------------------------------------------------------------------------------------------------


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from microsim.cli import main; sys.argv = ['microsim', '--help']\n"
        "try: main()\nexcept SystemExit: print([m for m in ('numba', 'numpy', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def can_take(seconds: float, *arguments: str) -> bool:
    """Once in twenty; the lesser of wall and processor time, so that a busy machine does not count."""
    for _ in range(20):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        run_from_nothing(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if min(used, time.monotonic() - started) <= seconds:
            return True
    return False


def test_help_takes_less_than_300_ms() -> None:
    assert can_take(0.3, "--help")


@pytest.mark.slow
def test_a_run_starts_within_a_second_and_a_half() -> None:
    cli("run", "--duration", "0")  # fills the cache of kernels
    assert can_take(1.5, "run", "--duration", "0")


@pytest.mark.slow
def test_real_time_is_kept_within_a_hundredth() -> None:
    facts = json.loads(cli("run", "--duration", "10", "--json").stdout)
    assert facts["rtf"] >= 0.99


@pytest.mark.slow
def test_a_first_run_is_announced_and_not_timed_whatever_was_compiled_before(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    assert cli("validate", "default", **cache).returncode == 0  # its obstacles compile a kernel
    done = cli("run", "default", "--duration", "0.5", "--json", *FAST, **cache)
    assert done.stderr.startswith("compiling kernels, first run only")
    assert json.loads(done.stdout)["wall_s"] < 5.0  # of the ticks alone, though compiling took longer
    assert cli("run", "default", "--duration", "0.5", *FAST, **cache).stderr == ""
