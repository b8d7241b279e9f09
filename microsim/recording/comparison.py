"""What a simulation sends, beside what was recorded, message by message: the way that finds the difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase

from microsim.messages.outbox import Message
from microsim.recording.bag import OwnBag
from microsim.recording.differences import Difference, Entry, Place
from microsim.recording.entries import BagError, Block, Channel
from microsim.recording.inputs import is_input
from microsim.recording.recorder import CLOCK


def recorded_choice(bag: OwnBag) -> dict[str, list[str]]:
    """Patterns of the topics that were chosen and left out; empty: all were recorded."""
    try:
        choice = json.loads(bag.facts.start.get("topics", "{}"))
        return {key: list(map(str, patterns)) for key, patterns in choice.items() if patterns}
    except (ValueError, AttributeError, TypeError):
        raise BagError(f"{bag.path}: damaged: the choice of topics cannot be read") from None


def is_chosen(bag: OwnBag, topic: str) -> bool:
    """Whether this topic was to be recorded. Inputs always are."""
    if is_input(topic):
        return True
    choice = recorded_choice(bag)
    only, left_out = choice.get("only", []), choice.get("without", [])
    chosen = not only or any(fnmatchcase(topic, pattern) for pattern in only)
    return chosen and not any(fnmatchcase(topic, pattern) for pattern in left_out)


def without(block: Block, places: Sequence[int]) -> Block:
    """The block without the entries at these places."""
    gone = set(places)
    kept = [index for index in range(len(block.numbers)) if index not in gone]
    return Block(
        block.channels,
        [block.numbers[index] for index in kept],
        [block.times[index] for index in kept],
        [block.data[index] for index in kept],
    )


class DifferentError(Exception):
    def __init__(self, difference: Difference) -> None:
        self.difference = difference


class MessageComparison:
    """Two streams side by side: what the simulation sends, and what was recorded. Both keep whole ticks together."""

    def __init__(self, bag: OwnBag) -> None:
        self._bag = bag
        self.same = 0
        self.is_partial = bool(recorded_choice(bag))
        self._numbers: dict[str, int] = {}  # by topic; 0: not recorded by choice, -1: recorded never
        self._channels: dict[int, Channel] = {}
        self._sent = Block()
        self._strangers: dict[int, tuple[str, str]] = {}
        self._time = 0
        self._before: tuple[Entry | None, Entry | None] = (None, None)

    def collect(self, messages: Sequence[Message]) -> None:
        numbers, sent, time = self._numbers, self._sent, self._time
        for message in messages:
            topic = message.topic
            if topic == CLOCK:
                time = message.stamp_ns
            number = numbers.get(topic)
            if number is None:
                number = self._stranger(topic, message.type)
            if number:
                sent.numbers.append(number)
                sent.times.append(time)
                sent.data.append(message.cdr)
        self._time = time

    def _stranger(self, topic: str, type_name: str) -> int:
        """A topic that the bag has not named so far."""
        if not is_chosen(self._bag, topic):
            self._numbers[topic] = 0
            return 0
        number = -1 - len(self._strangers)
        self._strangers[number] = (topic, type_name)
        self._numbers[topic] = number
        return number

    def compare(self, recorded: Block) -> None:
        """What was sent so far with this block."""
        for channel in recorded.channels:
            self._channels[channel.number] = channel
            number = self._numbers.get(channel.topic)
            self._numbers[channel.topic] = channel.number
            if number is not None and number < 0:
                self._rename(number, channel.number)
        sent = self._sent
        if sent.numbers != recorded.numbers or sent.times != recorded.times or sent.data != recorded.data:
            raise DifferentError(self._first(recorded))
        if sent.numbers:
            self._before = self._entry(recorded, -1), self._entry(sent, -1)
        self.same += len(sent.numbers)
        self._sent.numbers, self._sent.times, self._sent.data = [], [], []

    def _rename(self, old: int, new: int) -> None:
        """A topic whose first message was sent in this very block, before the block named it."""
        if self._channels[new].type == self._strangers[old][1]:
            self._sent.numbers = [new if number == old else number for number in self._sent.numbers]

    def rest(self) -> Difference | None:
        """After the recording's end nothing may be left."""
        return self._first(Block()) if self._sent.numbers else None

    def _first(self, recorded: Block) -> Difference:
        sent = self._sent
        pairs = [list(zip(b.numbers, b.times, b.data, strict=True)) for b in (recorded, sent)]
        shared = min(map(len, pairs))
        index = next((i for i in range(shared) if pairs[0][i] != pairs[1][i]), shared)
        first = self._place(recorded, index, self._before[0])
        return Difference(self.same + index, first, self._place(sent, index, self._before[1]))

    def _place(self, block: Block, index: int, before: Entry | None) -> Place:
        return Place(
            self._entry(block, index - 1) if index else before, *(self._entry(block, index + n) for n in (0, 1))
        )

    def _entry(self, block: Block, index: int) -> Entry | None:
        if index >= len(block.numbers):
            return None
        number = block.numbers[index]
        if number < 0:
            topic, type_name = self._strangers[number]
        else:
            topic, type_name = self._channels[number].topic, self._channels[number].type
        return Entry(topic, type_name, block.times[index], block.data[index])
