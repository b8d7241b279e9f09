"""PTX on disk: whatever other processes write and whatever happens to a file, code never gets another kernel's name."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microsim.batch.ptx_cache import entry_name, kept_ptx

CODE = b"//\n// Generated\n//\n.version 8.0\n.target sm_80\n\n.visible .entry _ZN4loopE(\n)\n{\n\tret;\n}\n"


def compiled(code: bytes = CODE) -> list[bytes]:
    """What `make` gives, once: a second call fails."""
    return [code]


def test_an_entry_is_one_file_that_is_compiled_once(tmp_path: Path) -> None:
    file, name = kept_ptx(tmp_path, "key", compiled().pop)
    assert name == "kernel_key"
    assert list(tmp_path.iterdir()) == [file]
    assert kept_ptx(tmp_path, "key", [].pop) == (file, name)
    assert file.read_bytes().endswith(CODE.replace(b"_ZN4loopE", b"kernel_key"))


@given(st.data())
def test_a_damaged_entry_is_compiled_again(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("kernels")
    file, name = kept_ptx(folder, "key", compiled().pop)
    whole = file.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    damage = data.draw(st.sampled_from(["cut", "flip", "empty", "zeros", "more", "lost"]))
    broken = {
        "cut": whole[:place],
        "flip": whole[:place] + bytes([whole[place] ^ 1 << data.draw(st.integers(0, 7))]) + whole[place + 1 :],
        "empty": b"",
        "zeros": bytes(len(whole)),
        "more": whole + b"\n",
        "lost": None,
    }[damage]
    file.unlink() if broken is None else file.write_bytes(broken)
    assert kept_ptx(folder, "key", compiled().pop) == (file, name)
    assert file.read_bytes() == whole


def test_the_code_of_another_kernel_is_not_taken_for_an_entry(tmp_path: Path) -> None:
    other, _ = kept_ptx(tmp_path, "other", compiled().pop)
    (tmp_path / "key.ptx").write_bytes(other.read_bytes())
    file, name = kept_ptx(tmp_path, "key", compiled().pop)
    assert entry_name(file.read_bytes()) == name == "kernel_key"


def test_files_of_processes_that_name_a_kernel_differently_are_the_same(tmp_path: Path) -> None:
    """One may replace the other after its name was read, and before it is loaded."""
    contents = set()
    for number in (1, 9, 10):
        (tmp_path / str(number)).mkdir()
        code = CODE.replace(b"_ZN4loopE", b"_ZN4loopB2v%dE" % number)
        file, name = kept_ptx(tmp_path / str(number), "key", compiled(code).pop)
        contents.add((file.read_bytes(), name))
    assert len(contents) == 1


def test_without_a_folder_that_can_be_written_to_it_is_compiled_all_the_same(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for folder in (None, missing):
        file, name = kept_ptx(folder, "key", compiled().pop)
        assert entry_name(file.read_bytes()) == name == "kernel_key"
    assert not missing.exists()


PROCESS = """
import sys, types
from pathlib import Path
import numba.cuda.dispatcher
capability = types.SimpleNamespace(compute_capability=(8, 0))
numba.cuda.dispatcher.get_current_device = lambda: capability
from microsim.batch.cuda_compiler import ptx_of
from microsim.batch.ptx_cache import entry_name, kept_ptx

def loop(first: int, second: int) -> None:
    first + second

for _ in range(int(sys.argv[2])):
    ptx_of(lambda first, second: None, 2, (8, 0))  # shifts the number in the next name
print("ready", flush=True)
sys.stdin.readline()
made = []
def make():
    made.append(ptx_of(loop, 2, (8, 0)))
    return made[-1]
file, name = kept_ptx(Path(sys.argv[1]), "loop", make)
print(name, f".entry {name}(" in file.read_text(), *[entry_name(code) for code in made])
"""


def test_processes_that_start_together_leave_a_whole_entry(tmp_path: Path) -> None:
    pytest.importorskip("numba_cuda", reason="pip install numba-cuda nvidia-nvvm (part of the extra `test`)")
    pytest.importorskip("cuda.bindings.nvvm", reason="pip install numba-cuda nvidia-nvvm (part of the extra `test`)")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(tmp_path), str(shift)], **pipes)  # type: ignore[call-overload]
        for shift in range(3)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    found = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 3
    assert [each[:2] for each in found] == [["kernel_loop", "True"]] * 3
    given = {name for each in found for name in each[2:]}  # by the compiler, in those that compiled
    assert given
    assert "kernel_loop" not in given
    assert [path.name for path in tmp_path.iterdir()] == ["loop.ptx"]  # no part of a file is left
    assert kept_ptx(tmp_path, "loop", [].pop)[1] == "kernel_loop"
