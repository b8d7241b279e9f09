"""Messages that a run takes, one file each. `INPUTS` finds them: built in, installed, or in a folder."""

from microsim.messages.inputs.input_kind import InputKind
from microsim.registry import Registry

INPUTS: Registry[InputKind] = Registry(
    "INPUT",
    "microsim.messages.inputs",
    "microsim.inputs",
    "InputKind(...)",
    lambda part: isinstance(part, InputKind),
    order=lambda part: part.position,
)
