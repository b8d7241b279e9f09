"""Ready CDR bytes in and out of Cyclone DDS.

The `cyclonedds` package supplies participants, quality of service, readers, writers and conditions. Three things go
past it, straight to the C library in its wheel: a topic with a type *name* but no type *description* (so that nothing
of XTypes is announced and peers match by name, as ROS 2 nodes do among themselves), writing encoded bytes, taking them.
"""

from __future__ import annotations

import ctypes as ct
import itertools
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from cyclonedds.core import DDSException, Entity, ReadCondition, WaitSet
from cyclonedds.domain import DomainParticipant
from cyclonedds.internal import DDS, dds_c_t
from cyclonedds.pub import DataWriter
from cyclonedds.qos import _CQos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

_NORMAL = DDS._dll_handle  # calls through it let other threads run meanwhile
_QUICK = ct.PyDLL(_NORMAL._name)  # the same library for calls that cannot block: cheaper

_SERDATA = 2
ANY_STATE = 0x7F
_TIMEOUT = -10
_XCDR1_ONLY = 1  # data representation
_RESTRICT_DATA_REPRESENTATION = 1 << 7
_ONE_OCTET = (0x01 << 24) | (0x01 << 16)  # instruction: an octet, at offset 0
_FATAL, _ERROR = 1, 2  # categories of the library's log
_TYPE_OFFSET = 24  # [byte] in the library's struct of encoded data: after a pointer, hash, count and kind
_AFTER_OTHERS = 1 << 30  # number of the first condition whose action comes last
_SMALL = 4096  # [byte] written without letting other threads run: done in microseconds


class _Blob(ct.Structure):
    _fields_ = (("data", ct.c_void_p), ("size", ct.c_uint32))


class _TopicDescriptor(ct.Structure):
    _fields_ = (
        *((name, ct.c_uint32) for name in ("size", "align", "flagset", "nkeys")),
        *(("typename", ct.c_char_p), ("keys", ct.c_void_p), ("nops", ct.c_uint32), ("ops", ct.POINTER(ct.c_uint32))),
        *(("meta", ct.c_char_p), ("type_information", _Blob), ("type_mapping", _Blob)),
        ("restrict_data_representation", ct.c_uint32),
    )


class _Bytes(ct.Structure):  # struct iovec
    _fields_ = (("base", ct.c_char_p), ("size", ct.c_size_t))


class _BytesRead(ct.Structure):  # struct iovec, for reading
    _fields_ = (("base", ct.c_void_p), ("size", ct.c_size_t))


def _function(library: Any, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function: Any = library[name]  # a fresh object each time: its types are ours alone
    function.restype, function.argtypes = result, list(arguments)
    return function  # type: ignore[no-any-return]


_entity = ct.c_int32
_create_topic = _function(
    _NORMAL, "dds_create_topic", _entity, _entity, ct.c_void_p, ct.c_char_p, ct.c_void_p, ct.c_void_p
)
_has_sertype = hasattr(_NORMAL, "dds_get_entity_sertype")  # since 0.11; Debian and Ubuntu carry 0.10
_create_endpoint = {
    kind: _function(_NORMAL, f"dds_create_{kind}", _entity, _entity, _entity, ct.c_void_p, ct.c_void_p)
    for kind in ("reader", "writer")
}
_write_sample = _function(_NORMAL, "dds_write", ct.c_int32, _entity, ct.c_void_p)
_delete = _function(_NORMAL, "dds_delete", ct.c_int32, _entity)
_serdata_from = _function(
    _QUICK, "ddsi_serdata_from_ser_iov", ct.c_void_p, ct.c_void_p, ct.c_int, ct.c_size_t, ct.c_void_p, ct.c_size_t
)
_write_small = _function(_QUICK, "dds_writecdr", ct.c_int32, _entity, ct.c_void_p)
_write_large = _function(_NORMAL, "dds_writecdr", ct.c_int32, _entity, ct.c_void_p)
_take = _function(_QUICK, "dds_takecdr", ct.c_int32, _entity, ct.c_void_p, ct.c_uint32, ct.c_void_p, ct.c_uint32)
_serdata_size = _function(_QUICK, "ddsi_serdata_size", ct.c_uint32, ct.c_void_p)
_serdata_view = _function(
    _QUICK, "ddsi_serdata_to_ser_ref", ct.c_void_p, ct.c_void_p, ct.c_size_t, ct.c_size_t, ct.c_void_p
)
_view_done = _function(_QUICK, "ddsi_serdata_to_ser_unref", None, ct.c_void_p, ct.c_void_p)
_serdata_done = _function(_QUICK, "ddsi_serdata_unref", None, ct.c_void_p)
_matched_status = _function(_QUICK, "dds_get_publication_matched_status", ct.c_int32, _entity, ct.c_void_p)
_wait_for_acks = _function(_NORMAL, "dds_wait_for_acks", ct.c_int32, _entity, ct.c_int64)
_attach = _function(_NORMAL, "dds_waitset_attach", ct.c_int32, _entity, _entity, ct.c_ssize_t)
_detach = _function(_NORMAL, "dds_waitset_detach", ct.c_int32, _entity, _entity)
_wait = _function(_NORMAL, "dds_waitset_wait", ct.c_int32, _entity, ct.c_void_p, ct.c_size_t, ct.c_int64)
_look = _function(_QUICK, "dds_waitset_wait", ct.c_int32, _entity, ct.c_void_p, ct.c_size_t, ct.c_int64)
_set_log_mask = _function(_QUICK, "dds_set_log_mask", None, ct.c_uint32)


def print_errors_only() -> None:
    """Limit the library's own log to errors: it warns of every type that Fast DDS 3 describes, needlessly.

    A trace file requested with `<Tracing>` in CYCLONEDDS_URI is not affected.
    """
    _set_log_mask(_FATAL | _ERROR)


def mismatch(endpoint: DataWriter[bytes] | DataReader[bytes]) -> Any:
    """How often the QoS of a peer did not match, and which policy it was last; the binding 0.10 cannot ask."""
    kind = "offered" if isinstance(endpoint, DataWriter) else "requested"
    status = getattr(dds_c_t, f"{kind}_incompatible_qos_status")()
    name = f"dds_get_{kind}_incompatible_qos_status"
    _checked(_function(_QUICK, name, ct.c_int32, _entity, ct.c_void_p)(endpoint._ref, ct.byref(status)), name)
    return status


def instance_handle(endpoint: DataWriter[bytes]) -> int:
    """The same as its method, which fails in the binding 0.10."""
    found = ct.c_uint64()
    get = _function(_QUICK, "dds_get_instance_handle", ct.c_int32, _entity, ct.c_void_p)
    _checked(get(endpoint._ref, ct.byref(found)), "dds_get_instance_handle")
    return found.value


class _Endpoint(ct.Structure):  # dds_builtintopic_endpoint_t
    _fields_ = (
        *(("key", ct.c_uint8 * 16), ("participant_key", ct.c_uint8 * 16), ("participant", ct.c_uint64)),
        *(("topic_name", ct.c_char_p), ("type_name", ct.c_char_p), ("qos", ct.c_void_p)),
    )


def matched(end: DataWriter[bytes] | DataReader[bytes]) -> list[int]:
    """Handles of the endpoints of others that it is matched with."""
    what, room = "publications" if isinstance(end, DataReader) else "subscriptions", 16
    get = _function(_QUICK, f"dds_get_matched_{what}", ct.c_int32, _entity, ct.c_void_p, ct.c_size_t)
    while True:
        handles = (ct.c_uint64 * room)()
        count = _checked(get(end._ref, handles, room), "dds_get_matched")
        if count <= room:
            return list(handles[:count])
        room = count


def announced(end: DataWriter[bytes] | DataReader[bytes], handle: int) -> Any:
    """What a matched endpoint says about itself, `key` and `qos` at least; None: it has gone."""
    what = "publication" if isinstance(end, DataReader) else "subscription"
    ask = getattr(end, f"get_matched_{what}_data", None)
    if ask is not None:
        return ask(handle)
    get = _function(_QUICK, f"dds_get_matched_{what}_data", ct.POINTER(_Endpoint), _entity, ct.c_uint64)
    found = get(end._ref, handle)  # the binding 0.10 does not have it
    if not found:
        return None
    endpoint = SimpleNamespace(
        key=UUID(bytes=bytes(found.contents.key)),
        participant_key=UUID(bytes=bytes(found.contents.participant_key)),
        qos=_CQos.cqos_to_qos(found.contents.qos),  # type: ignore[no-untyped-call]
    )
    _function(_QUICK, "dds_builtintopic_free_endpoint", None, ct.POINTER(_Endpoint))(found)
    return endpoint


def _checked(code: int, doing: str) -> int:
    if code < 0:
        raise DDSException(code, doing)
    return code


def _topic(participant: int, name: str, type_name: str) -> int:
    """Reference of a topic whose type is described as one octet, by name."""
    operations = (ct.c_uint32 * 3)(_ONE_OCTET, 0, 0)
    layout = {"size": 1, "align": 1, "nops": 2, "ops": operations, "typename": type_name.encode()}
    limits = {"flagset": _RESTRICT_DATA_REPRESENTATION, "restrict_data_representation": _XCDR1_ONLY}
    descriptor = _TopicDescriptor(**layout, **limits)
    return int(_create_topic(participant, ct.byref(descriptor), name.encode(), None, None))


def _type_of_writer(writer: int) -> int:
    """The library's type of what is written; its versions from 0.11 on tell."""
    found = ct.c_void_p()
    get = _function(_NORMAL, "dds_get_entity_sertype", ct.c_int32, _entity, ct.c_void_p)
    _checked(get(writer, ct.byref(found)), "dds_get_entity_sertype")
    return int(found.value or 0)


def _type_of_sample(participant: int, type_name: str) -> int:
    """The same, read from a sample that goes from a writer to a reader of this process: a domain has each type once."""
    topic = _checked(_topic(participant, "microsim_type", type_name), "dds_create_topic")
    reader = _checked(_create_endpoint["reader"](participant, topic, None, None), "dds_create_reader")
    writer = _checked(_create_endpoint["writer"](participant, topic, None, None), "dds_create_writer")
    taken, info = (ct.c_void_p * 1)(), (dds_c_t.sample_info * 1)()
    _checked(_write_sample(writer, ct.byref(ct.c_uint8())), "dds_write")
    if _checked(_take(reader, taken, 1, info, ANY_STATE), "dds_takecdr") != 1:
        raise DDSException(-1, "dds_takecdr")
    found = ct.c_void_p.from_address((taken[0] or 0) + _TYPE_OFFSET).value
    _serdata_done(taken[0])
    for entity in (reader, writer, topic):
        _delete(entity)
    return int(found or 0)


class CdrTopic(Topic):  # type: ignore[type-arg] # its samples are not IDL types
    """A topic known by its name and the name of its type; the bytes written to it are opaque."""

    def __init__(self, participant: DomainParticipant, name: str, type_name: str) -> None:
        Entity.__init__(self, _topic(participant._ref, name, type_name))
        self.data_type = bytes
        self.type_at = 0 if _has_sertype else _type_of_sample(participant._ref, type_name)
        self._keepalive_entities = [participant]


class CdrWriter:
    """Writes encoded messages, encapsulation header included."""

    def __init__(self, writer: DataWriter[bytes], topic: CdrTopic) -> None:
        self.writer = writer
        self.timeouts = 0  # messages dropped because a reliable reader did not keep up
        self.is_heard = False  # whether there were readers at the last look
        self._ref = writer._ref
        self._sertype = topic.type_at or _type_of_writer(self._ref)
        self._bytes = _Bytes()
        self._bytes_at = ct.byref(self._bytes)
        self._status = dds_c_t.publication_matched_status()
        self._status_at = ct.byref(self._status)

    def write(self, cdr: bytes) -> None:
        size, source = len(cdr), self._bytes
        source.base, source.size = cdr, size
        serdata = _serdata_from(self._sertype, _SERDATA, 1, self._bytes_at, size)
        if not serdata:
            raise ValueError("not an encoded message")
        code = (_write_small if size < _SMALL else _write_large)(self._ref, serdata)
        if code == _TIMEOUT:
            self.timeouts += 1
        elif code < 0:
            raise DDSException(code, "dds_writecdr")

    def matched(self) -> int:
        _matched_status(self._ref, self._status_at)
        count = int(self._status.current_count)
        self.is_heard = count > 0
        return count

    def wait_for_acks(self, timeout_s: float) -> bool:
        """Whether all reliable readers have acknowledged everything within that time."""
        return not self.matched() or _wait_for_acks(self._ref, int(max(timeout_s, 0.0) * 1e9)) >= 0

    def keeps_bytes(self, cdr: bytes) -> bool:
        """Whether the library returns the bytes it was given: a check of its binary interface."""
        self._bytes.base, self._bytes.size = cdr, len(cdr)
        serdata = _serdata_from(self._sertype, _SERDATA, 1, self._bytes_at, len(cdr))
        try:
            return bool(serdata) and _bytes_of(serdata, _BytesRead()) == cdr
        finally:
            if serdata:
                _serdata_done(serdata)


def _bytes_of(serdata: int, view: _BytesRead) -> bytes:
    size = _serdata_size(serdata)
    reference = _serdata_view(serdata, 0, size, ct.byref(view))
    cdr = ct.string_at(view.base, size)  # the one copy on the way in
    _view_done(reference, ct.byref(view))
    return cdr


class CdrReader:
    BATCH = 64

    def __init__(self, reader: DataReader[bytes], depth: int) -> None:
        self.reader = reader
        self.has_data = ReadCondition(reader, ANY_STATE)
        self._depth = depth
        self._ref = reader._ref
        self._batch = min(depth, self.BATCH)
        self._serdata = (ct.c_void_p * self._batch)()
        self._infos = (dds_c_t.sample_info * self._batch)()

    def take(self, limit: int | None = None) -> list[tuple[bytes, int]]:
        """(message, handle of its writer), oldest first, at most `limit` or else the history's depth; never waits."""
        taken: list[tuple[bytes, int]] = []
        left, view = min(limit or self._depth, self._depth), _BytesRead()
        while left > 0:
            wanted = min(left, self._batch)
            count = _checked(_take(self._ref, self._serdata, wanted, self._infos, ANY_STATE), "dds_takecdr")
            for index in range(count):
                serdata, info = self._serdata[index], self._infos[index]
                if serdata and info.valid_data:
                    taken.append((_bytes_of(serdata, view), info.publication_handle))
                _serdata_done(serdata)
            if count < wanted:
                break
            left -= count
        return taken


class Waiter:
    """Waits for the first of many conditions and returns those that are true."""

    def __init__(self, participant: DomainParticipant) -> None:
        self.waitset = WaitSet(participant)
        self._ref = self.waitset._ref
        self._actions: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()
        self._attached: dict[int, int] = {}  # reference of a condition -> number of its action
        self._fired = (ct.c_ssize_t * 1)()
        self._count = 0

    def attach(self, condition: Entity, action: Callable[[], None], is_last: bool = False) -> None:
        number = next(self._numbers) + _AFTER_OTHERS * is_last
        _checked(_attach(self._ref, condition._ref, number), "dds_waitset_attach")
        self._attached[condition._ref] = number
        self._actions[number] = action
        self._fired = (ct.c_ssize_t * len(self._actions))()

    @property
    def has_last(self) -> bool:
        """Whether one of those that `wait` gave last comes after all others."""
        return any(number >= _AFTER_OTHERS for number in self._fired[: self._count])

    def has(self, condition: Entity) -> bool:
        return condition._ref in self._attached

    def detach(self, condition: Entity) -> None:
        _checked(_detach(self._ref, condition._ref), "dds_waitset_detach")
        del self._actions[self._attached.pop(condition._ref)]

    def wait(self, timeout_ns: int) -> list[Callable[[], None]]:
        """The actions of the conditions that are true, in the order in which they were attached."""
        fired = self._fired
        wait = _wait if timeout_ns > 0 else _look
        count = self._count = _checked(wait(self._ref, fired, len(fired), timeout_ns), "dds_waitset_wait")
        return [partial(self._act, number) for number in sorted(fired[:count])] if count else []

    def _act(self, number: int) -> None:
        action = self._actions.get(number)  # None: detached by an action before it
        if action is not None:
            action()
