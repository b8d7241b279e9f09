"""What scenario models are made of: the frozen model, bounded numbers, short vectors, semantic classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Annotated, Any, NoReturn, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema
from typing_extensions import Self

from microsim import errors
from microsim.documents.yaml_text import Path as KeyPath
from microsim.errors import did_you_mean, there_are
from microsim.errors import show as show  # noqa: PLC0414 - scenario models take it from here

MAX_LENGTH_M = 1e7  # a quarter of the equator; beyond it float64 metres lose their micrometres

MAX_HZ = 10_000
MIN_HZ = 1e-9  # a period of 31 years; a run ends after 68

# of sensors, wherever they are described
MAX_IMAGE_SIDE_PX = 8192
MAX_IMAGE_PIXELS = 16_000_000
MAX_ELEVATION = 1.57  # [rad]
MAX_RINGS = 256
MAX_COLUMNS = 65_536
MAX_BEAMS = 4_000_000  # of a turn

_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("of at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("of at most", "le"),
}

_KINDS = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "finite_number": "a finite number",
}

_KNOWN_ERRORS = frozenset(get_args(core_schema.ErrorType))

CLASS_NAMES = ("ground", "obstacle", "hazard", "target", "water")  # the index is the class id (PRD §4.2.2.1)


def refusal(message: str, at_key: bool = False, rule: str = "", remedy: str = "") -> PydanticCustomError:
    """What a validator raises. `at_key`: the key is wrong, not its value; `rule`: that of world bundles it breaks."""
    context = {"message": message, "at_key": at_key, "rule": rule, "remedy": remedy}
    return PydanticCustomError("scenario", "{message}", context)


def detail(
    message: str, *loc: str | int, found: object = None, at_key: bool = False, rule: str = "", remedy: str = ""
) -> InitErrorDetails:
    """One problem, at `loc` below the value that is being validated."""
    return InitErrorDetails(type=refusal(message, at_key, rule, remedy), loc=loc, input=found)


def fail(details: Iterable[InitErrorDetails]) -> NoReturn:
    raise ValidationError.from_exception_data("scenario", list(details))


def describe(value: object) -> str:
    """The value with its kind, for messages about a wrong kind."""
    if isinstance(value, str):
        kind = " (text; write numbers without quotes)" if _is_number(value) else " (text)"
        return show(value) + kind
    return show(value)


def describe_error(error: ErrorDetails) -> str:
    """One line: what is expected, what was found."""
    kind, found, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "scenario":
        return str(context["message"])
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", error["msg"]))
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"expected a value {words} {_plain(context[key])}, found {show(found)}"
    if kind in _KINDS:
        return f"expected {_KINDS[kind]}, found {describe(found)}"
    if kind == "literal_error":
        return _not_among(str(context["expected"]), found)
    if kind in ("too_short", "too_long"):
        least, most = context.get("min_length"), context.get("max_length")
        bound = f"at least {least}" if kind == "too_short" else f"at most {most}"
        return f"expected {bound} values, found {context['actual_length']}"
    if kind in ("string_too_short", "string_too_long"):
        bound = (
            f"at least {context['min_length']}" if kind == "string_too_short" else f"at most {context['max_length']}"
        )
        return f"expected text of {bound} characters, found {show(found)}"
    return f"{error['msg'][:1].lower()}{error['msg'][1:]}, found {show(found)}"


def _plain(number: Any) -> str:
    return f"{number:g}" if isinstance(number, float) else str(number)


def _not_among(expected: str, found: object) -> str:
    choices = [choice.strip("'") for choice in expected.replace(" or ", ", ").split(", ")]
    guess = did_you_mean(found, choices) if isinstance(found, str) else ""
    return f"expected {expected}, found {show(found)}{guess}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class Model(BaseModel):
    """A block of a scenario: immutable, and closed against keys it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True, validate_default=True
    )

    @classmethod
    def key_names(cls) -> list[str]:
        """The keys as they are written in YAML."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def belongs_elsewhere(cls, key: str) -> str:
        """The message about a key that is known, but in another block; empty when it is not."""
        return ""

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, cls):
            return handler(data)
        if not isinstance(data, Mapping):
            expected = f"expected a mapping with any of the keys {', '.join(cls.key_names())}"
            hint = "; leave the key out to get the defaults" if data is None else ""
            fail([detail(f"{expected}, found {show(data)}{hint}", found=data)])
        try:
            return handler(data)
        except ValidationError as error:
            fail([cls._with_choices(each) for each in error.errors(include_url=False)])

    @classmethod
    def _with_choices(cls, error: ErrorDetails) -> InitErrorDetails:
        """The same error; about a key of this very block it also says which keys there are."""
        loc = error["loc"]
        if error["type"] == "extra_forbidden" and len(loc) == 1:
            message = cls.belongs_elsewhere(str(loc[0])) or unknown("key", loc[0], cls.key_names())
            return detail(message, *loc, found=error["input"], at_key=True)
        if error["type"] == "missing" and len(loc) == 1:
            return detail(f"missing key '{loc[0]}'; the keys are {', '.join(cls.key_names())}", *loc)
        return _again(error)


def younger(*keys: str) -> Any:
    """In a model: these are written out only where they are not as by default, because files of before lack them."""

    def without(self: Model, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields, data = type(self).model_fields, handler(self)
        return {key: data[key] for key in data if key not in keys or getattr(self, key) != fields[key].default}

    return model_serializer(mode="wrap")(without)


def _again(error: ErrorDetails, *prefix: str | int) -> InitErrorDetails:
    loc = (*prefix, *error["loc"])
    if error["type"] == "scenario":
        return InitErrorDetails(
            type=PydanticCustomError("scenario", "{message}", error["ctx"]), loc=loc, input=error["input"]
        )
    if error["type"] not in _KNOWN_ERRORS:  # a plug-in's model may have kinds of its own
        return detail(error["msg"], *loc, found=error["input"])
    return InitErrorDetails(type=error["type"], loc=loc, input=error["input"], ctx=error.get("ctx", {}))


def under(error: ValidationError, *prefix: str | int) -> list[InitErrorDetails]:
    """The errors of a nested value, located below `prefix`."""
    return [_again(each, *prefix) for each in error.errors(include_url=False)]


def unknown(what: str, word: object, choices: Iterable[str]) -> str:
    """`unknown key 'reolution'; did you mean 'resolution'? there are: hz, resolution`."""
    return errors.unknown(f"unknown {what}", show(word), word, choices)


def exactly(count: int, shape: str) -> BeforeValidator:
    """Refuses a list of another length with one message, in place of one for each missing element."""

    def check(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"expected {shape}, found {show(value)}")
        if len(value) != count:
            raise ValueError(f"expected {shape}, found {len(value)} values: {show(value)}")
        return tuple(value)

    return BeforeValidator(check)


def _class_id(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in CLASS_NAMES:
        return CLASS_NAMES.index(value.lower())
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(CLASS_NAMES):
        return value
    guess = did_you_mean(value, CLASS_NAMES) if isinstance(value, str) else ""
    named = ", ".join(f"{index} {name}" for index, name in enumerate(CLASS_NAMES))
    raise ValueError(f"unknown class {show(value)}{guess}{' ' if guess else '; '}the classes are {named}")


def _rate_or_off(value: Any) -> Any:
    if not 0 <= _number_of_hertz(value) <= MAX_HZ:
        raise ValueError(f"expected a rate from 0 to {MAX_HZ} Hz, found {show(value)}")
    return value


def _rate(value: Any) -> Any:
    if not 0 < _number_of_hertz(value) <= MAX_HZ:
        raise ValueError(f"expected a rate above 0 and up to {MAX_HZ} Hz, found {show(value)}")
    return value


def _number_of_hertz(value: Any) -> Any:
    """Whole numbers stay whole, so that a rate prints as it was written."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"expected a rate in Hz, found {describe(value)}")
    if 0 < value < MIN_HZ:
        slowest = f"expected a rate of at least {MIN_HZ:g} Hz"
        raise ValueError(f"{slowest}, found {show(value)}; a run lasts 68 years at most")
    return value


VARIES = "varies"  # marks a number of a sensor that `randomize` may draw
RADIANS = "radians"  # marks an angle, which may have been written in degrees by mistake

Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Metres = Annotated[Finite, Field(ge=-MAX_LENGTH_M, le=MAX_LENGTH_M)]
Length = Annotated[Finite, Field(gt=0, le=MAX_LENGTH_M)]  # of something that has extent
Height = Annotated[Finite, Field(ge=0, le=MAX_LENGTH_M)]  # of something that may be flat
Angle = Annotated[Finite, Field(ge=-1e4, le=1e4), RADIANS]
Sigma = Annotated[Finite, Field(ge=0, le=1e6)]
Positive = Annotated[Finite, Field(gt=0, le=1e6)]
Probability = Annotated[Finite, Field(ge=0, le=1)]
Noise = Annotated[Finite, Field(ge=0, le=1e6), VARIES]
Chance = Annotated[Finite, Field(ge=0, le=1), VARIES]
Milliseconds = Annotated[Finite, Field(ge=0, le=1e6)]
Switch = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1)]
Seed = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1)]
ClassId = Annotated[int, BeforeValidator(_class_id), WithJsonSchema({"enum": [*range(len(CLASS_NAMES)), *CLASS_NAMES]})]

Hertz = Annotated[
    int | float, BeforeValidator(_rate), WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": MAX_HZ})
]
HertzOrOff = Annotated[
    int | float, BeforeValidator(_rate_or_off), WithJsonSchema({"type": "number", "minimum": 0, "maximum": MAX_HZ})
]

PointXY = Annotated[tuple[Metres, Metres], exactly(2, "[x, y]")]
PointXYZ = Annotated[tuple[Metres, Metres, Metres], exactly(3, "[x, y, z]")]
SizeXY = Annotated[tuple[Length, Length], exactly(2, "[x, y]")]
SizeXYZ = Annotated[tuple[Length, Length, Length], exactly(3, "[x, y, z]")]
RollPitchYaw = Annotated[tuple[Angle, Angle, Angle], exactly(3, "[roll, pitch, yaw]")]


def by_type(kinds: Mapping[str, type[Model]], elsewhere: Mapping[str, str]) -> Callable[[Any], Any]:
    """Validates a mapping as the model its `type` names. `elsewhere`: types that belong under another key."""

    def choose(value: Any) -> Any:
        if isinstance(value, Model):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"expected a mapping with a type ({', '.join(kinds)}), found {show(value)}")
        if "type" not in value:
            fail([detail(f"missing key 'type'; {there_are(kinds)}", found=value)])
        kind = value["type"]
        if isinstance(kind, str) and kind in kinds:
            return kinds[kind].model_validate(value)
        if isinstance(kind, str) and kind in elsewhere:
            fail([detail(f"a {kind} belongs under `{elsewhere[kind]}:`; here {there_are(kinds)}", "type", found=kind)])
        fail([detail(unknown("type", kind, kinds), "type", found=kind)])

    return choose


def without_unset(block: dict[str, Any], keys: Sequence[str]) -> None:
    """Remove these keys, at any depth, where they are None or false."""
    for key in keys:
        if key in block and (block[key] is None or block[key] is False):
            del block[key]
    for value in block.values():
        if isinstance(value, dict):
            without_unset(value, keys)


def nearest_first(near: float, far: float) -> None:
    """Refuses a sensor whose least distance is not below its greatest."""
    if near >= far:
        raise ValueError(f"expected min_m below max_m, found min_m {show(near)} and max_m {show(far)}")


# ---- angles that are probably in degrees -----------------------------------------------------------------------------

_TURN = 6.283185307179586  # [rad]


def in_degrees(value: Any, kind: Any = None, path: KeyPath = ()) -> Iterator[tuple[str, KeyPath]]:
    """A warning, and where it belongs, for each angle of a model, at any depth, that is more than a full turn.

    `kind`: the type that the value was declared with.
    """
    if isinstance(value, BaseModel):
        for name, key, declared in _declared(type(value)):
            yield from in_degrees(getattr(value, name), declared, (*path, key))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from in_degrees(each, None, (*path, key))
    elif isinstance(value, (tuple, list)):
        for index, (each, declared) in enumerate(zip(value, _of_elements(kind, len(value)), strict=True)):
            yield from in_degrees(each, declared, (*path, index))
    elif isinstance(value, float) and abs(value) > _TURN and RADIANS in _parts(kind):
        turns, radians = abs(value) / _TURN, value * _TURN / 360.0
        shown = _plain(value)
        yield f"angles are in radians: {shown} is {turns:.1f} turns; for {shown}° write {radians:.4f}", path


@cache
def _declared(model: type[BaseModel]) -> tuple[tuple[str, str, Any], ...]:
    """Name, key and type of every field."""
    fields = model.model_fields.items()
    return tuple(
        (name, each.alias or name, Annotated[each.annotation, (*each.metadata, None)]) for name, each in fields
    )


def _parts(kind: Any) -> Iterator[Any]:
    """Everything a type consists of."""
    yield kind
    for each in kind if isinstance(kind, tuple) else get_args(kind):
        yield from _parts(each)


def _of_elements(kind: Any, count: int) -> Iterator[Any]:
    """The types of a list's elements."""
    whole = next((each for each in _parts(kind) if get_origin(each) in (tuple, list)), None)
    kinds = get_args(whole) or (None,)
    return iter(kinds) if len(kinds) == count and Ellipsis not in kinds else repeat(kinds[0], count)
