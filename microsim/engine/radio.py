"""The radio (PRD 4.3, 6.4; contract 5): per direction a queue with latency, jitter and loss.

The n-th packet of a direction draws the n-th numbers of that direction's stream, so whether it is lost does not depend
on when others sent theirs.

Where packets may not overtake, latencies come from `jitter`; else each is drawn on its own.
"""

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from microsim.engine.exact import log
from microsim.engine.jitter import next_deviation
from microsim.engine.noise import stream_key, uniforms

_LOG_10 = 2.302585092994046


@dataclass(frozen=True)
class PathLoss:
    """Log-distance path loss, with the reference at one metre."""

    tx_power_dbm: float
    path_loss_exponent: float
    reference_loss_db: float

    def received_dbm(self, distance_m: float) -> float:
        decades = log(max(distance_m, 1.0)) / _LOG_10
        return self.tx_power_dbm - self.reference_loss_db - 10.0 * self.path_loss_exponent * decades


@dataclass(frozen=True)
class RadioSettings:
    latency_ms_mean: float
    latency_ms_jitter: float  # 1 sigma
    drop_probability: float
    reordering: bool  # a packet may overtake an earlier one
    half_duplex: bool  # all directions share the air
    bitrate_bps: float | None  # None: packets take no time on air
    queue_limit: int  # packets under way per direction
    rssi: PathLoss | None


_NEVER = 1e15  # [ticks] a bit rate close to 0 would give infinity


class Packet(NamedTuple):
    arrival_tick: int
    number: int
    sent_tick: int
    payload: bytes


@dataclass
class Link:
    """One direction, with what `/radio/metrics` reports."""

    sender: str
    receiver: str
    key: int
    queue: list[Packet] = field(default_factory=list)  # sorted by (arrival tick, number)
    sent: int = 0
    delivered: int = 0
    dropped: int = 0
    overflowed: int = 0
    latency_sum: int = 0  # [ticks]
    latency_square_sum: int = 0
    last_latency: int = 0
    last_arrival: int = 0
    last_on_air: float = -math.inf  # [ticks] when the last packet that was not lost had been sent
    deviation: float = 0.0  # of the latency of that one from the mean, in standard deviations
    rssi_dbm: float | None = None  # of the last packet; NaN before the first, None when there is no model

    def metrics(self, tick_ms: float) -> dict[str, str]:
        """Figures since the last reset, as text."""
        mean = self.latency_sum / self.delivered if self.delivered else 0.0
        variance = self.latency_square_sum / self.delivered - mean * mean if self.delivered else 0.0
        values = {
            "sent": str(self.sent),
            "delivered": str(self.delivered),
            "dropped": str(self.dropped),
            "overflowed": str(self.overflowed),
            "drop_percent": f"{100.0 * self.dropped / self.sent if self.sent else 0.0:.3f}",
            "latency_ms_mean": f"{mean * tick_ms:.3f}",
            "latency_ms_jitter": f"{math.sqrt(max(variance, 0.0)) * tick_ms:.3f}",
            "latency_ms_last": f"{self.last_latency * tick_ms:.3f}",
            "queue_depth": str(len(self.queue)),
        }
        if self.rssi_dbm is not None:
            values["rssi_dbm"] = f"{self.rssi_dbm:.2f}"
        return values


class RadioNetwork:
    def __init__(self, settings: RadioSettings, robots: Sequence[str], physics_hz: float, seed: int) -> None:
        self.settings = settings
        self.hz = float(physics_hz)
        self.links = [
            Link(
                sender,
                receiver,
                stream_key(seed, f"radio/{sender}_tx/{receiver}_rx"),
                rssi_dbm=None if settings.rssi is None else math.nan,
            )
            for sender in robots
            for receiver in robots
            if sender != receiver
        ]
        self.under_way = 0  # packets in all queues
        self.air_free_at: dict[str, float] = {}  # channel -> [ticks] when the last transmission ends
        self.blackouts: tuple[tuple[int, int], ...] = ()  # [ticks] from, to: every packet sent is lost

    def send(self, sender: str, payload: bytes, tick: int, distance: Callable[[str, str], float]) -> None:
        """Hand in a packet: it goes on air once, and every other robot gets its own copy, loss and delay."""
        links = [link for link in self.links if link.sender == sender]
        on_air_until = float(tick)
        if any(len(link.queue) < self.settings.queue_limit for link in links):
            on_air_until = self._air_time_end(sender, len(payload), tick)
        for link in links:
            self._transmit(link, payload, tick, on_air_until, distance)

    def _transmit(
        self, link: Link, payload: bytes, tick: int, on_air_until: float, distance: Callable[[str, str], float]
    ) -> None:
        number = link.sent
        link.sent += 1
        if self.settings.rssi is not None:
            link.rssi_dbm = self.settings.rssi.received_dbm(distance(link.sender, link.receiver))
        if len(link.queue) >= self.settings.queue_limit:
            link.overflowed += 1
            return
        is_black = any(first <= tick < end for first, end in self.blackouts)
        if is_black or uniforms(link.key, number, 1)[0] < self.settings.drop_probability:
            link.dropped += 1
            return
        latency_ms = self.settings.latency_ms_mean + self.settings.latency_ms_jitter * self._deviation(
            link, number, on_air_until
        )
        due = on_air_until + max(latency_ms, 0.0) * self.hz / 1000.0
        arrival = math.floor(min(due, _NEVER) + 0.5)
        if not self.settings.reordering:
            arrival = max(arrival, link.last_arrival)
        link.last_arrival = arrival
        insort(link.queue, Packet(arrival, number, tick, payload))  # numbers differ: payloads are never compared
        self.under_way += 1

    def _deviation(self, link: Link, number: int, on_air_until: float) -> float:
        """Of a packet's latency from the mean, in standard deviations."""
        sigma = self.settings.latency_ms_jitter * self.hz / 1000.0  # [ticks]
        is_ordered = sigma > 0.0 and not self.settings.reordering
        elapsed = (on_air_until - link.last_on_air) / sigma if is_ordered else math.inf
        link.deviation = next_deviation(link.key, number, link.deviation, elapsed)
        link.last_on_air = on_air_until
        return link.deviation

    def _air_time_end(self, sender: str, size: int, tick: int) -> float:
        """When the packet's last bit is sent [ticks]; half duplex means that all share one channel."""
        if self.settings.bitrate_bps is None:
            return float(tick)
        channel = "" if self.settings.half_duplex else sender
        start = max(float(tick), self.air_free_at.get(channel, 0.0))
        end = min(start + 8.0 * size / self.settings.bitrate_bps * self.hz, _NEVER)
        self.air_free_at[channel] = end
        return end

    def deliver(self, tick: int) -> list[tuple[str, bytes]]:
        """(receiver, payload) of every packet that has arrived by this tick."""
        arrived: list[tuple[str, bytes]] = []
        if not self.under_way:
            return arrived
        for link in self.links:
            while link.queue and link.queue[0].arrival_tick <= tick:
                packet = link.queue.pop(0)
                self.under_way -= 1
                latency = tick - packet.sent_tick
                link.delivered += 1
                link.latency_sum += latency
                link.latency_square_sum += latency * latency
                link.last_latency = latency
                arrived.append((link.receiver, packet.payload))
        return arrived

    def next_arrival(self) -> float:
        """The tick at which the next packet arrives."""
        if not self.under_way:
            return math.inf
        return min(link.queue[0].arrival_tick for link in self.links if link.queue)

    def used_links(self) -> list[Link]:
        """Both directions of a pair; of more robots those that have been used: sixteen would have 240."""
        return [link for link in self.links if link.sent or len(self.links) <= 2]

    def _rssi(self, link: Link) -> float | None:
        """Of a link from a snapshot: the model may have been switched on or off since."""
        if self.settings.rssi is None:
            return None
        return math.nan if link.rssi_dbm is None else link.rssi_dbm

    def save(self) -> tuple[Any, ...]:
        return [Link(**{**vars(link), "queue": list(link.queue)}) for link in self.links], dict(self.air_free_at)

    def load(self, saved: tuple[Any, ...]) -> None:
        """Links of robots that were not there then begin empty."""
        links, air_free_at = saved
        known = {(link.sender, link.receiver): link for link in links}
        found = [known.get((link.sender, link.receiver), link) for link in self.links]
        keys = [link.key for link in self.links]
        self.links = [
            replace(link, key=key, queue=list(link.queue), rssi_dbm=self._rssi(link))
            for link, key in zip(found, keys, strict=True)
        ]
        self.air_free_at = dict(air_free_at)
        self.under_way = sum(len(link.queue) for link in self.links)
