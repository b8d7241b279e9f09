"""`kernel`: compiles a function of numbers with numba, bit-exactly and cached.

No fastmath and no fused multiply-add, so a kernel gives the bits of its plain-Python form
(`NUMBA_DISABLE_JIT=1` runs that form). `error_model="numpy"` only removes the zero-division check, which blocks SIMD;
kernels of plug-ins keep it.

A kernel is kept on disk in a file named by all that decides its bits (`kernel_key`). So an outdated one, which could
give other bits, is never loaded, and after an edit only the kernels that it reaches are compiled again. Each signature
has a file of its own, so that processes can compile at the same time.
"""

import hashlib
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import numba
import numba.core.config
import numba.core.utils
from numba.core import caching, event
from numba.core.ccallback import CFunc

from microsim.engine import prebuilt
from microsim.engine.kernel_key import NotByValueError, key_of
from microsim.engine.prebuilt import Prebuilt

_Function = TypeVar("_Function", bound=Callable[..., Any])


KERNEL_FOLDERS = ("engine", "rays", "render", "robots", "sensors", "batch", "recording", "bundle", "parts")


VERSIONS = f"numba{numba.__version__}-python{numba.core.utils.PYVERSION[0]}.{numba.core.utils.PYVERSION[1]}"
VERSIONS += "-checked" * bool(numba.core.config.BOUNDSCHECK)


@cache
def source_hash() -> str:
    """Of every file with kernels: for what is kept about all of them."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(VERSIONS.encode())
    for file in sorted(file for folder in KERNEL_FOLDERS for file in (package / folder).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


CACHE_PROBLEMS: list[str] = []  # why compiled kernels cannot be kept: then every process compiles again


def _cache_folder() -> Path | None:
    """A writable folder for compiled kernels, or None."""
    chosen = numba.core.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(chosen) / "microsim" / "kernels" / VERSIONS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
        CACHE_PROBLEMS.append(f"{folder} is not writable")
    except OSError as error:
        CACHE_PROBLEMS.append(f"{error.filename or folder}: {error.strerror or error}")
    return None


CACHE_FOLDER = _cache_folder()
PREBUILT = Prebuilt(prebuilt.FOLDER, VERSIONS)


def is_precompiled(what: str) -> bool:
    """Whether all that `what` needs came with the package, or was compiled before by this version and kept."""
    if numba.core.config.DISABLE_JIT or PREBUILT.has(_mark_of(what)):
        return True
    return CACHE_FOLDER is not None and (CACHE_FOLDER / _mark_of(what)).exists()


def note_precompiled(what: str) -> None:
    """All that `what` needs is compiled."""
    if CACHE_FOLDER is not None and not numba.core.config.DISABLE_JIT:
        with suppress(OSError):  # reported again next time; nothing is lost
            (CACHE_FOLDER / _mark_of(what)).touch()


def _mark_of(what: str) -> str:
    return f"{prebuilt.OF_MARKS}{hashlib.sha256(f'{source_hash()} {what}'.encode()).hexdigest()[:16]}"


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


_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def is_checked(function: Any) -> bool:
    """Whether a kernel is compiled with checks of every index: those of plug-ins, and with NUMBA_BOUNDSCHECK=1 all."""
    return bool(numba.core.config.BOUNDSCHECK) or _is_of_plugin(function)


def _is_of_plugin(function: Any) -> bool:
    return not function.__code__.co_filename.startswith(_PACKAGE)


def _njit(function: _Function, **options: Any) -> _Function:
    if is_checked(function):
        options["boundscheck"] = True
    options["error_model"] = "python" if _is_of_plugin(function) else "numpy"
    compiled: _Function = numba.njit(no_cfunc_wrapper=True, **options)(function)
    return compiled


def _checks(function: Any) -> str:
    """The checks of a kernel, in the name of its file."""
    return "-plugin" if _is_of_plugin(function) else "-checked" * is_checked(function)


def _compiled(function: _Function, **options: bool) -> _Function:
    compiled = _kept(_njit(function, **options))
    if hasattr(compiled, "get_call_template"):  # not with NUMBA_DISABLE_JIT
        _InnerForm(compiled, options)
    return compiled


def _kept(compiled: Any, form: str = "") -> Any:
    """Compiled code that is looked for on disk, and kept there."""
    if not numba.core.config.DISABLE_JIT and (CACHE_FOLDER is not None or PREBUILT.target is not None):
        function = compiled.__wrapped__ if isinstance(compiled, CFunc) else compiled.py_func
        compiled._cache = KernelCache(function, f"{form}{_checks(function)}")
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
        return _kept(_njit(self._function, no_cpython_wrapper=True, **self._options), "inner")

    def _get_call_template(self, arguments: Any, keywords: Any) -> Any:
        plain = tuple(numba.types.unliteral(each) for each in arguments)
        return self._dispatcher.get_call_template(plain, {k: numba.types.unliteral(v) for k, v in keywords.items()})

    def _get_overload(self, signature: Any) -> Any:
        return self._dispatcher.get_overload(signature)


def cached_cfunc(signature: Any, function: Callable[..., Any]) -> Any:
    """A compiled function with an address that other compiled code can call; kept on disk like a kernel."""
    parts = signature.args, signature.return_type
    compiled = _kept(CFunc(function, parts, locals={}, options={"error_model": "numpy"}), "called")
    compiled.compile()
    return compiled


class KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """Where a kernel is kept. numba's own place for it would be named by its file."""

    def __init__(self, function: Callable[..., Any], form: str) -> None:
        self._name, self._py_func = repr(function), function
        self._form = form
        self._cache_path = str(CACHE_FOLDER)
        self.enable()

    @cached_property
    def _impl(self) -> Any:
        return _CompileResults(self._py_func)

    @cached_property
    def _cache_file(self) -> Any:  # when first needed: a module has more kernels than a run calls
        try:
            key = key_of(self._py_func)
        except NotByValueError:  # a plug-in's: it is compiled in every process
            return NotKept()
        name = "".join(each for each in self._py_func.__qualname__ if each.isalnum() or each in "_.")
        return SignatureFiles(self._cache_path, f"{name[-60:]}{'-' * bool(self._form)}{self._form}-{key[:32]}", key)

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        return signature, codegen.magic_tuple()


class _CompileResults(caching.CompileResultCacheImpl):  # type: ignore[misc]
    """Makes bytes of compiled code, and code of bytes; numba would also look for a place beside the source."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Locator(function)


class _Locator:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename  # for numba's warning about code that cannot be kept

    def ensure_cache_path(self) -> None:
        """It is there."""


class NotKept:
    def save(self, key: Any, data: Any) -> None:
        pass

    def load(self, key: Any) -> Any:
        return None


class SignatureFiles(caching.IndexDataCacheFile):  # type: ignore[misc]
    """A file for each signature of a kernel, named by it.

    numba numbers the files and keeps an index of them. Two processes that compile different signatures of a kernel at
    the same time can choose the same number, and then one signature is given the code of the other, for good.
    """

    def save(self, key: Any, data: Any) -> None:
        if CACHE_FOLDER is None:
            return
        try:
            self._save_data(self._name(key), (self._source_stamp, key, data))
        except OSError as error:  # a full disk, for example; the code that was compiled runs all the same
            CACHE_PROBLEMS.append(f"{error.filename or CACHE_FOLDER}: {error.strerror or error}")

    def load(self, key: Any) -> Any:
        """What was compiled here before, or came with the package."""
        try:
            found = self._load_data(self._name(key))
        except Exception:  # there is none, or it is damaged: pickles fail in many ways; it is compiled again
            return self._prebuilt(key)
        return self._checked(found, key)

    def _prebuilt(self, key: Any) -> Any:
        if PREBUILT.target is None:
            return None
        key = prebuilt.key_for(key, PREBUILT.target)
        data = PREBUILT.read(self._name(key))
        try:
            return None if data is None else self._checked(pickle.loads(data), key)  # noqa: S301 - part of the package
        except Exception:  # as above
            return None

    def _checked(self, found: Any, key: Any) -> Any:
        stamp, saved_key, data = found
        return data if (stamp, saved_key) == (self._source_stamp, key) else None

    def flush(self) -> None:
        """There is no index to empty."""

    def _name(self, key: Any) -> str:
        return f"{self._index_name}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"
