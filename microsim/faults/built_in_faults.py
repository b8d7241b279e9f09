"""The faults that ship with MicroSim, in the order in which they are listed."""

from microsim.faults import FaultKind, OnMessages, OnNode, OnRadio, OnSensor, Passing


def _delay(message: Passing) -> None:
    message.until = max(message.until, message.tick + message.delay)


def _lose(message: Passing) -> None:
    message.copies = 0


def _duplicate(message: Passing) -> None:
    message.copies += 1


def _reorder(message: Passing) -> None:
    message.is_overtaken = True


FAULT = (
    FaultKind("fail", "a camera repeats its last image, a LiDAR gives no points", OnSensor(fails=True)),
    FaultKind("dropout", "the sensor sends nothing", OnSensor(is_silent=True)),
    FaultKind("blackout", "the radio loses every packet", OnRadio(), example="radio:blackout@3s-5s"),
    FaultKind(
        "jump",
        "a GPS fix is shifted by `offset_m`",
        OnSensor(is_shifted=True),
        takes_offset=True,
        example="gps:jump(10,0,0)@3s-9s",
    ),
    FaultKind(
        "delay",
        "messages on a topic are delayed by `delay_s`, in order",
        OnMessages(_delay),
        takes_delay=True,
        example="/rover/cmd_vel:delay(0.2)@3s-5s",
    ),
    FaultKind("loss", "messages on a topic are lost", OnMessages(_lose), example="/rover/cmd_vel:loss(0.3)@3s-5s"),
    FaultKind(
        "duplication",
        "messages on a topic arrive twice",
        OnMessages(_duplicate),
        example="/rover/odom:duplication@3s-5s",
    ),
    FaultKind(
        "reordering",
        "a message on a topic arrives after the next one",
        OnMessages(_reorder, may_reorder=True),
        example="/rover/odom:reordering@3s-5s",
    ),
    FaultKind("pause", "the node of `--with` is suspended, then resumed", OnNode(), example="node:pause@3s-5s"),
    FaultKind("kill", "the node of `--with` is killed, then restarted", OnNode(kills=True), example="node:kill@3s-5s"),
)
