"""The faults that ship with MicroSim, in the order in which they are listed."""

from microsim.faults import FaultKind

FAULT = (
    FaultKind("fail", "a camera repeats its last image, a LiDAR gives no points", "fail"),
    FaultKind("dropout", "the sensor sends nothing", "silence"),
    FaultKind("blackout", "the radio loses every packet", "blackout", example="radio:blackout@3s-5s"),
    FaultKind(
        "jump", "a GPS fix is shifted by `offset_m`", "shift", takes_offset=True, example="gps:jump(10,0,0)@3s-9s"
    ),
    FaultKind(
        "delay",
        "messages on a topic are delayed by `delay_s`, in order",
        "delay",
        takes_delay=True,
        example="/rover/cmd_vel:delay(0.2)@3s-5s",
    ),
    FaultKind("loss", "messages on a topic are lost", "lose", example="/rover/cmd_vel:loss(0.3)@3s-5s"),
    FaultKind("duplication", "messages on a topic arrive twice", "duplicate", example="/rover/odom:duplication@3s-5s"),
    FaultKind(
        "reordering",
        "a message on a topic arrives after the next one",
        "reorder",
        example="/rover/odom:reordering@3s-5s",
    ),
    FaultKind("pause", "the node of `--with` is suspended, then resumed", "pause", example="node:pause@3s-5s"),
    FaultKind("kill", "the node of `--with` is killed, then restarted", "kill", example="node:kill@3s-5s"),
)
