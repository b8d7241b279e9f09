"""Who flies a sweep, how many they are and what becomes of them leaves no trace in its result."""

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from microsim.cli.commands.validate import validate
from microsim.engine.noise import normals, stream_key
from microsim.errors import UsageError
from microsim.parts.sweep import results
from microsim.parts.sweep.plan import load_sweep, make_plan
from microsim.parts.sweep.run_all import Reports, journal_of, sweep_to_file
from microsim.parts.sweep.worker_pool import LocalWorkers, WorkerError
from tests.cli_support import environment
from tests.cli_support import run_microsim as cli
from tests.forked_python import forked_python
from tests.sweep_support import plan_of, write_yard

KEYS = {"seeds": "0..7", "vary": {"wind.gust_sigma": [0, 2]}}
ODD_SEED = 2  # with which the plug-in below does what it does
FOUND = f"f'{{noise:.12f}}' == '{normals(stream_key(ODD_SEED, 'drone/odd'), 0, 0)[0]:.12f}'"
ONCE = f"mark = folder / 'once'\n            if {FOUND} and not mark.exists(): mark.touch(); "
WAIT = f"if {FOUND} and (folder / 'wait').exists(): (folder / 'pid').write_text(str(os.getpid())); time.sleep(1000)"
SUICIDE = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def folder(tmp_path):
    write_yard(tmp_path)
    return tmp_path


def swept(plan, out: Path, jobs: int = 1, timeout_s: float = 60.0, **reports) -> bytes:
    sweep_to_file(plan, lambda: LocalWorkers(plan.order(), jobs, timeout_s), out, Reports(**reports))
    return out.read_bytes()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The world, and the results of one process that flew it undisturbed."""
    folder = tmp_path_factory.mktemp("yard")
    write_yard(folder, WAIT)
    plan = plan_of(folder, **KEYS)
    finished = sweep_to_file(plan, lambda: LocalWorkers(plan.order(), 1, 60.0), folder / "one.csv")
    results.write(folder / "one.parquet", finished)
    return {suffix: (folder / f"one{suffix}").read_bytes() for suffix in (".csv", ".parquet")} | {"folder": folder}


def test_one_process_and_two_give_the_same_files(expected):
    folder = expected["folder"]
    plan = plan_of(folder, **KEYS)
    assert swept(plan, folder / "two.csv", jobs=2) == expected[".csv"]
    assert not journal_of(folder / "two.csv").exists()


def test_a_killed_sweep_is_resumed_to_the_same_file(expected):
    folder = expected["folder"]
    words = ["sweep", "--plugins", str(folder), str(folder / "yard.yaml"), "--mission", str(folder / "drive.yaml")]
    words += ["--seeds", "0..7", "--vary", "wind.gust_sigma=0,2", "--jobs", "2"]
    words += ["--metrics", "path_length,collisions,displacement.drone,radio_drop,digest", "--out", "cut.parquet"]
    journal = folder / "cut.parquet.journal"
    (folder / "wait").touch()  # one run does not end: the sweep cannot be over before it is killed
    command = [*forked_python(environment()), "-m", "microsim", *words]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 3 and (folder / "pid").exists()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    (folder / "wait").unlink()
    hanging = int((folder / "pid").read_text())
    while Path(f"/proc/{hanging}").exists():  # it ends by itself, in the middle of its run
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not (folder / "cut.parquet").exists()
    done = cli(*words, "--resume", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "cut.parquet").read_bytes() == expected[".parquet"]
    assert not journal.exists()


def test_the_runs_of_a_killed_worker_are_done_again(folder):
    write_yard(folder, f"{ONCE}{SUICIDE}")
    plan = plan_of(folder, **KEYS)
    told: list[str] = []
    first = swept(plan, folder / "a.csv", jobs=2, trouble=told.append)
    assert len(told) == 1
    assert "ended by SIGKILL" in told[0]
    assert first == swept(plan, folder / "b.csv", trouble=told.append)  # nobody dies a second time
    assert len(told) == 1
    assert first.count(b"\n") == 17
    assert b"died" not in first


def test_a_run_that_kills_every_worker_fails_alone(folder):
    write_yard(folder, f"if {FOUND}: {SUICIDE}")
    lines = swept(plan_of(folder, seeds="0..3"), folder / "a.csv").decode().splitlines()[1:]
    assert ["a worker died in this run (3 attempts)" in line for line in lines] == [False, False, True, False]
    assert journal_of(folder / "a.csv").exists()  # so that --resume can try again


def test_a_run_that_hangs_is_ended(folder):
    write_yard(folder, f"{ONCE}time.sleep(1000)")
    told: list[str] = []
    lines = swept(plan_of(folder, seeds="2..3"), folder / "a.csv", timeout_s=2.0, trouble=told.append).splitlines()
    assert len(lines) == 3
    assert any("no result in 2 s" in text for text in told)


def test_workers_that_cannot_start_are_no_endless_loop(folder, monkeypatch):
    monkeypatch.setattr("microsim.parts.sweep.worker_pool.MAX_STARTS", 2)
    plan = plan_of(folder, seeds="0..2")
    order = plan.order()
    object.__setattr__(order, "scenario", "{broken")
    with pytest.raises(WorkerError, match=r"workers do not start: .*the recorded scenario"):
        sweep_to_file(plan, lambda: LocalWorkers(order, 1, 60.0), folder / "a.csv")


def test_a_sweep_that_is_stopped_says_how_to_go_on_and_leaves_no_worker(folder):
    write_yard(folder, f"if {FOUND}: (folder / str(os.getpid())).touch(); time.sleep(1000)")
    words = ["sweep", "--plugins", ".", "yard.yaml", "--mission", "drive.yaml", "--seeds", f"{ODD_SEED}..5"]
    words += ["--metrics", "digest", "--jobs", "1", "--out", "a.csv"]
    command = [*forked_python(environment()), "-m", "microsim", *words]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (workers := [path.name for path in folder.iterdir() if path.name.isdecimal()]):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped after 0 of 4 runs; there is nothing to keep" in told
    assert not (folder / "a.csv.journal").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(workers[0]), 0)


def test_a_sweep_file_is_a_gate(folder, capsys):
    (folder / "gate.yaml").write_text(
        "scenario: yard.yaml\nmission: drive.yaml\nseeds: 0..3\nout: results.csv\n"
        "metrics: [path_length.rover]\nassert:\n  - path_length.rover > 2\n  - share(collisions > 0) == 0\n"
    )
    plan = make_plan(load_sweep(folder / "gate.yaml"))
    finished = sweep_to_file(plan, lambda: LocalWorkers(plan.order(), 1, 60.0), folder / "results.csv")
    assert finished.is_good
    name = str(folder / "gate.yaml")
    assert validate([name], as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == [{"sweep": name, "ok": True, "problems": []}]
    bad = cli("sweep", "gate.yaml", "--assert", "path_length.rover > 3", "--overwrite", "--jobs", "1",
              "--junit", "sweep.xml", cwd=folder)  # fmt: skip
    assert (bad.returncode, "4 runs, 1 of 1 assertions BROKEN → results.csv" in bad.stdout) == (1, True)
    assert re.search(r"does not hold in 4 runs: .*microsim replay --token \S+", bad.stderr)
    report = (folder / "sweep.xml").read_text(encoding="utf-8")
    assert 'tests="4" failures="4"' in report
    assert report.count("does not hold: path_length.rover &gt; 3: microsim replay --token ") == 8  # message and text


# ---- a cluster -------------------------------------------------------------------------------------------------------

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # then it listens on 127.0.0.1 only
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of this machine, with two processors, that listens on the loopback interface only."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # the paths of its sockets must be short
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--num-cpus=2"]
    command += [f"--port={port}", "--node-ip-address=127.0.0.1", "--include-dashboard=false", "--disable-usage-stats"]
    command += [f"--temp-dir={place}", "--object-store-memory=80000000"]
    with Path(f"{place}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment(**QUIET), stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + 120
            while b"Ray runtime started" not in Path(log.name).read_bytes():
                assert process.poll() is None, Path(log.name).read_text()
                assert time.monotonic() < deadline, Path(log.name).read_text()
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(2)
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # Ray's processes take their time
            process.wait()
            shutil.rmtree(place, ignore_errors=True)
            Path(log.name).unlink()


@pytest.mark.slow  # a cluster takes half a minute to start and to end
def test_a_ray_cluster_gives_the_same_file_though_workers_die(cluster, folder):
    write_yard(folder, f"{ONCE}{SUICIDE}")
    arguments = ["sweep", str(folder / "yard.yaml"), "--mission", str(folder / "drive.yaml"), "--seeds", "0..7"]
    arguments += [
        "--vary",
        "wind.gust_sigma=0,2",
        "--metrics",
        "path_length,collisions,displacement.drone,radio_drop,digest",
    ]
    done = cli(*arguments, "--ray", cluster, "--out", "ray.parquet", cwd=folder, **QUIET)
    assert done.returncode == 0, done.stderr
    assert "a worker was lost and replaced" in done.stderr
    assert (folder / "ray.parquet").read_bytes() == swept(plan_of(folder, **KEYS), folder / "one.parquet")


def test_a_cluster_that_is_not_there_is_told(folder):
    from microsim.parts.sweep.worker_pool import RayWorkers

    order = plan_of(folder, seeds="0").order()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(WorkerError, match=f"no Ray cluster at '{address}'"):
            RayWorkers(order, address, None, 60.0)
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        RayWorkers(order, "nowhere", None, 60.0)
