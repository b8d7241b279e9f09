"""What `ros2` takes: every verb about a network with its arguments, as Jazzy's ros2cli 0.32.2 and rosbag2 declare them.

`[NAME]` may be left out, `NAME...` may be repeated, and `=` follows an option with a value.
"""

import re
from typing import NamedTuple

_TABLE = """
topic bw: TOPIC --window,-w= --spin-time= -s,--use-sim-time
topic delay: TOPIC --window,-w= --spin-time= -s,--use-sim-time
topic echo: TOPIC_NAME [MESSAGE_TYPE] --spin-time= -s,--use-sim-time --no-daemon --qos-profile= --qos-depth=
    --qos-history= --qos-reliability= --qos-durability= --qos-liveliness= --qos-liveliness-lease-duration-seconds=
    --csv --field= --full-length,-f --truncate-length,-l= --no-arr --no-str --flow-style --no-lost-messages --raw
    --filter= --once --timeout= --include-message-info,-i
topic find: TOPIC_TYPE --spin-time= -s,--use-sim-time --no-daemon -c,--count-topics --include-hidden-topics
topic hz: TOPIC_NAME --window,-w= --filter= --wall-time --spin-time= -s,--use-sim-time
topic info: TOPIC_NAME --spin-time= -s,--use-sim-time --no-daemon --verbose,-v
topic list: --spin-time= -s,--use-sim-time --no-daemon -t,--show-types -c,--count-topics --include-hidden-topics
    -v,--verbose
topic pub: TOPIC_NAME MESSAGE_TYPE [VALUES] --stdin -r,--rate= -p,--print= -1,--once -t,--times=
    -w,--wait-matching-subscriptions= --max-wait-time-secs= --keep-alive= -n,--node-name= --qos-profile=
    --qos-depth= --qos-history= --qos-reliability= --qos-durability= --qos-liveliness=
    --qos-liveliness-lease-duration-seconds= --spin-time= -s,--use-sim-time
topic type: TOPIC_NAME --spin-time= -s,--use-sim-time --no-daemon
service call: SERVICE_NAME SERVICE_TYPE [VALUES] --stdin -r,--rate=
service echo: SERVICE_NAME [SERVICE_TYPE] --csv --full-length,-f --truncate-length,-l= --no-arr --no-str
    --flow-style
service find: SERVICE_TYPE -c,--count-services --include-hidden-services
service info: SERVICE_NAME --spin-time= -s,--use-sim-time --no-daemon
service list: --spin-time= -s,--use-sim-time --no-daemon -t,--show-types -c,--count-services
    --include-hidden-services
service type: SERVICE_NAME
action info: ACTION_NAME -t,--show-types -c,--count
action list: -t,--show-types -c,--count-actions
action send_goal: ACTION_NAME ACTION_TYPE [GOAL] --stdin -f,--feedback
action type: ACTION_NAME
param delete: NODE_NAME PARAMETER_NAME --spin-time= -s,--use-sim-time --no-daemon --include-hidden-nodes --timeout=
param describe: NODE_NAME PARAMETER_NAMES... --spin-time= -s,--use-sim-time --no-daemon --include-hidden-nodes
    --timeout=
param dump: NODE_NAME --spin-time= -s,--use-sim-time --no-daemon --include-hidden-nodes --timeout=
param get: NODE_NAME PARAMETER_NAME --spin-time= -s,--use-sim-time --no-daemon --include-hidden-nodes --hide-type
    --timeout=
param list: [NODE_NAME] --spin-time= -s,--use-sim-time --no-daemon --filter= --include-hidden-nodes
    --param-prefixes= --param-type
param load: NODE_NAME PARAMETER_FILE --spin-time= -s,--use-sim-time --no-daemon --include-hidden-nodes
    --no-use-wildcard --timeout=
param set: NODE_NAME PARAMETER_NAME VALUE --spin-time= -s,--use-sim-time --no-daemon --include-hidden-nodes
    --timeout=
node info: NODE_NAME --spin-time= -s,--use-sim-time --no-daemon --include-hidden
node list: --spin-time= -s,--use-sim-time --no-daemon -a,--all -c,--count-nodes
interface list: -m,--only-msgs -s,--only-srvs -a,--only-actions
interface package: PACKAGE_NAME -m,--only-msgs -s,--only-srvs -a,--only-actions
interface packages: -m,--only-msgs -s,--only-srvs -a,--only-actions
interface proto: TYPE --no-quotes
interface show: TYPE --all-comments --no-comments
bag info: BAG_PATH -s,--storage= -t,--topic-name -v,--verbose
"""


class Verb(NamedTuple):
    words: list[str]  # topic, echo
    arguments: list[str]
    options: list[tuple[list[str], bool]]  # names, and whether a value follows

    @property
    def needed(self) -> list[str]:
        return [each for each in self.arguments if not each.startswith("[")]


def _verb(line: str) -> Verb:
    verb, _, rest = line.partition(":")
    words = rest.split()
    options = [each for each in words if each.startswith("-")]
    named = [(each.rstrip("=").split(","), each.endswith("=")) for each in options]
    return Verb(verb.split(), [each for each in words if not each.startswith("-")], named)


VERBS = [_verb(line) for line in re.sub(r"\n +", " ", _TABLE.strip()).splitlines()]
