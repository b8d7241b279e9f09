"""Gates of a lockstep run: where simulated time stops until nodes have replied. The ROS 2 part waits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from microsim.documents.values import Count, Finite, Model, detail, fail
from microsim.documents.yaml_text import read_yaml
from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import UsageError

PATIENCE_S = 10.0  # of `fail` and `continue`, where `within` is not given


def _is_absolute(value: Any) -> Any:
    if isinstance(value, str) and not value.startswith("/"):
        fail([detail(f"expected a name with a leading slash, such as /{value or 'rover/odom'}, found {value!r}")])
    return value


TopicName = Annotated[
    str, Field(strict=True, min_length=2, max_length=200, pattern="^/"), BeforeValidator(_is_absolute)
]
WallSeconds = Annotated[Finite, Field(gt=0, le=86_400)]


class Settle(Model):
    """A node that replies only sometimes: the run waits until it has handled what was sent to it."""

    node: TopicName = Field(description="Its name in the graph, such as `/planner`.")
    done: TopicName | None = Field(
        None,
        description="A topic of std_msgs/Header on which the node reports the stamp up to which it is done. Default: "
        "its parameter services are asked, which it answers after the messages that it received before.",
    )


class Gate(Model):
    """Simulated time stops until a node has replied: `{after: /rover/scan, expect: /rover/cmd_vel}`."""

    after: TopicName | None = Field(None, description="Stop whenever a message was sent on this topic.")
    every: Annotated[Finite, Field(gt=0, le=3600)] | None = Field(
        None, description="Or stop with this period, for nodes with timers in simulated time [s]."
    )
    expect: TopicName | None = Field(None, description="The topic of the replies: one that the simulation takes.")
    settle: Settle | None = Field(
        None, description="Or, for a node that replies only sometimes: wait until it has handled what was sent to it."
    )
    count: Annotated[Count, Field(le=1000)] = Field(1, description="Replies to each message, or in each period.")
    match: Literal["order", "stamp"] = Field(
        "order", description="stamp: only replies count whose header has the stamp of the message they answer."
    )
    within: WallSeconds | None = Field(
        None, description="Longest wait in wall time, after which `on_stall` decides [s]; default: 10, or no limit."
    )
    on_stall: Literal["wait", "fail", "continue"] | None = Field(
        None, description="Then: wait on, fail, or continue without the reply. Default: fail with `within`, else wait."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if (self.expect is None) == (self.settle is None):
            fail([detail("missing key 'expect' or 'settle': a gate has one of them")])
        if (self.after is None) == (self.every is None) and (self.settle is None or self.after is not None):
            fail([detail("a gate has either `after: TOPIC` or `every: SECONDS`")])
        if self.settle is not None:
            self._check_settle(self.settle)
        if self.match == "stamp" and self.after is None:
            fail([detail("`match: stamp` needs `after`: there is no message to answer", "match")])
        if self.within is not None and self.on_stall == "wait":
            fail(
                [detail("`within` is for `on_stall: fail` or `continue`; leave one of them out", "within", at_key=True)]
            )
        return self

    def _check_settle(self, settle: Settle) -> None:
        if settle.done is not None and self.after is None:
            message = "`done` needs `after`: the topic whose stamps the node reports"
            fail([detail(message, "settle", "done", at_key=True)])
        for key in [key for key, usual in (("count", 1), ("match", "order")) if getattr(self, key) != usual]:
            fail([detail(f"`{key}` is for `expect`; a node that settles may reply as often as it likes", key)])

    @property
    def awaited(self) -> str:
        """What it waits for, by which the run knows it."""
        return self.expect or f"settle {self.settle.node if self.settle else ''}"

    @property
    def policy(self) -> str:
        return self.on_stall or ("wait" if self.within is None else "fail")

    @property
    def patience_s(self) -> float:
        """Of wall time."""
        return PATIENCE_S if self.within is None else self.within

    def is_due(self, time_ns: int, before_ns: int) -> bool:
        """With `every`: whether its period ends in the tick from one time to the other."""
        period_ns = round((self.every or 0.0) * NS_PER_S)
        return time_ns // period_ns > before_ns // period_ns

    def __str__(self) -> str:
        when = f" after {self.after}" if self.after else f" every {self.every:g} s" if self.every else ""
        return f"{self.expect or f'{self.settle.node} to settle' if self.settle else self.expect}{when}"


def refuse_gates(what: str, *sources: Any) -> None:
    """Scenarios and missions with gates, where no node could open them."""
    for source in sources:
        if source is not None and source.lockstep:
            rule = f"{what} runs without ROS 2 nodes, so that nothing could open its gates"
            raise UsageError(f"{source.name} has `lockstep`, but {rule}: leave that key out")


def gates_from_text(text: str) -> list[Any]:
    """Gates on the command line: YAML, the braces of a single one may be left out. The scenario checks them."""
    data = read_yaml(text if text.lstrip()[:1] in ("{", "[") else f"{{{text}}}", "--lockstep").data
    found = data if isinstance(data, list) else [data]
    if not found or not all(isinstance(each, dict) and any(each.values()) for each in found):
        forms = "'after: TOPIC, expect: TOPIC', 'every: SECONDS, expect: TOPIC' or 'settle: {node: NAME}'"
        raise UsageError(f"--lockstep: expected {forms}, found {text!r}")
    return found
