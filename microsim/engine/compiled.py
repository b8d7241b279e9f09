"""`kernel`: compiles a function of numbers with numba, bit-exactly and cached.

No fastmath and no fused multiply-add, so a kernel gives the bits of its plain-Python form
(`NUMBA_DISABLE_JIT=1` runs that form). `error_model="numpy"` only removes the zero-division check, which blocks SIMD.

numba notices a change in a kernel's own file, not in the kernels it calls or the constants it imports. So the cache
folder's name is a hash over every file of the folders with kernels: a stale one, which could give other bits, is never
loaded. Each signature of a kernel has a file of its own, so that processes can compile at the same time.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numba
import numba.core.config
import numba.core.utils
from numba.core import caching, event

_Function = TypeVar("_Function", bound=Callable[..., Any])


KERNEL_FOLDERS = ("engine", "rays", "render", "robots", "sensors", "batch", "recording", "bundle", "learning")


def _source_hash() -> str:
    package = Path(__file__).parents[1]  # numba keeps kernels apart by place and Python, and so must `is_precompiled`
    digest = hashlib.sha256(f"{numba.__version__} {numba.core.utils.PYVERSION} {package}".encode())
    for file in sorted(file for folder in KERNEL_FOLDERS for file in (package / folder).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


CACHE_PROBLEMS: list[str] = []  # why compiled kernels cannot be kept: then every process compiles again


def _cache_folder() -> Path | None:
    """A writable folder for compiled kernels, or None."""
    chosen = numba.core.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(chosen) / "microsim" / "kernels" / _source_hash()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
        CACHE_PROBLEMS.append(f"{folder} is not writable")
    except OSError as error:
        CACHE_PROBLEMS.append(f"{error.filename or folder}: {error.strerror or error}")
    return None


CACHE_FOLDER = _cache_folder()


def is_precompiled(what: str) -> bool:
    """Whether all that `what` needs was compiled before, and is in the cache."""
    return bool(numba.core.config.DISABLE_JIT) or (CACHE_FOLDER is not None and _mark(CACHE_FOLDER, what).exists())


def note_precompiled(what: str) -> None:
    """All that `what` needs is compiled."""
    if CACHE_FOLDER is not None and not numba.core.config.DISABLE_JIT:
        with suppress(OSError):  # reported again next time; nothing is lost
            _mark(CACHE_FOLDER, what).touch()


def _mark(folder: Path, what: str) -> Path:
    return folder / f"precompiled-{hashlib.sha256(what.encode()).hexdigest()[:16]}"


@contextmanager
def watched(begun: Callable[[], None], done: Callable[[], None]) -> Iterator[None]:
    """Meanwhile these are called for every kernel that is compiled, not of those that come from the cache."""

    class CompileEvents(event.Listener):  # type: ignore[misc]
        def on_start(self, event: object) -> None:
            begun()

        def on_end(self, event: object) -> None:
            done()

    with event.install_listener("numba:compile", CompileEvents()):
        yield


def kernel(function: _Function) -> _Function:
    """Compile on first call and keep the result on disk."""
    return _compiled(function)


def inlined(function: _Function) -> _Function:
    """A kernel whose body always becomes part of its callers', so that their loops over it can turn into SIMD."""
    return _compiled(function, forceinline=True)


def threaded_kernel(function: _Function) -> _Function:
    """A kernel during which other threads may run: long ones, called on parts of the work at once."""
    return _compiled(function, nogil=True)


def threaded_kernel_of_kernel(function: _Function) -> _Function:
    """A `threaded_kernel` that is given a kernel as an argument: numba cannot keep those on disk."""
    return _njit(function, nogil=True)


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel's plain-Python form: quicker for a list or a handful of numbers, and the same bits."""
    form: Callable[..., Any] = getattr(function, "py_func", function)
    return form


def _njit(function: _Function, **options: bool) -> _Function:
    compiled: _Function = numba.njit(error_model="numpy", no_cfunc_wrapper=True, **options)(function)
    return compiled


def _compiled(function: _Function, **options: bool) -> _Function:
    with _our_cache():
        compiled = _njit(function, cache=CACHE_FOLDER is not None, **options)
    if hasattr(compiled, "get_call_template"):  # not with NUMBA_DISABLE_JIT
        _InnerForm(compiled, options)
    return compiled


class _InnerForm:
    """What other kernels call: the same code without the wrapper through which Python calls it.

    The wrapper takes a third of the time of compiling, and most kernels are called by kernels alone. Numbers that are
    constants where it is called are not compiled in, so one form serves all callers.
    """

    def __init__(self, outer: Any, options: dict[str, bool]) -> None:
        self._function, self._options = outer.py_func, options
        outer.get_call_template, outer.get_overload = self._get_call_template, self._get_overload

    @cached_property
    def _dispatcher(self) -> Any:
        with _our_cache("inner"):
            return _njit(self._function, cache=CACHE_FOLDER is not None, no_cpython_wrapper=True, **self._options)

    def _get_call_template(self, arguments: Any, keywords: Any) -> Any:
        plain = tuple(numba.types.unliteral(each) for each in arguments)
        return self._dispatcher.get_call_template(plain, {k: numba.types.unliteral(v) for k, v in keywords.items()})

    def _get_overload(self, signature: Any) -> Any:
        return self._dispatcher.get_overload(signature)


def cached_cfunc(signature: Any, function: Callable[..., Any]) -> Any:
    """A compiled function with an address that other compiled code can call; kept on disk like a kernel."""
    with _our_cache():
        return numba.cfunc(signature, cache=CACHE_FOLDER is not None, error_model="numpy")(function)


@contextmanager
def _our_cache(part: str = "") -> Iterator[None]:
    before = numba.core.config.CACHE_DIR, caching.IndexDataCacheFile
    numba.core.config.CACHE_DIR = str(CACHE_FOLDER / part) if CACHE_FOLDER is not None else ""
    caching.IndexDataCacheFile = SignatureFiles
    try:
        yield
    finally:
        numba.core.config.CACHE_DIR, caching.IndexDataCacheFile = before


class SignatureFiles(caching.IndexDataCacheFile):  # type: ignore[misc]
    """A file for each signature of a kernel, named by it.

    numba numbers the files and keeps an index of them. Two processes that compile different signatures of a kernel at
    the same time can choose the same number, and then one signature is given the code of the other, for good.
    """

    def save(self, key: Any, data: Any) -> None:
        try:
            self._save_data(self._name(key), (self._source_stamp, key, data))
        except OSError as error:  # a full disk, for example; the code that was compiled runs all the same
            CACHE_PROBLEMS.append(f"{error.filename or CACHE_FOLDER}: {error.strerror or error}")

    def load(self, key: Any) -> Any:
        try:
            stamp, saved_key, data = self._load_data(self._name(key))
        except Exception:  # there is none, or it is damaged: pickles fail in many ways; it is compiled again
            return None
        return data if (stamp, saved_key) == (self._source_stamp, key) else None

    def flush(self) -> None:
        """There is no index to empty."""

    def _name(self, key: Any) -> str:
        return f"{self._index_name}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"
