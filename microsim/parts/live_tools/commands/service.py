"""`microsim service`: services of any ROS 2 network."""

from __future__ import annotations

import time
from typing import Annotated, NamedTuple

import typer

from microsim.cli.command import Command, JsonOption, with_options
from microsim.cli.terminal import note
from microsim.options import argument, flag, option
from microsim.parts.live_tools.live import (
    PANEL,
    AnswerOption,
    FormOptions,
    GivenArgument,
    MessageOutput,
    NamesOutput,
    OnceOption,
    Ros2Options,
    StdinOption,
    TypesOption,
    WithinOption,
    connected,
    messages_of,
    plain_form,
    print_message,
    print_plain,
    read_values,
    type_and_values,
)
from microsim.parts.live_tools.named_verbs import Named, Sides


class ServiceOutput(Sides):
    service: str


service = typer.Typer(no_args_is_help=True, help="List and call services.")
OUTPUTS = {
    "list": NamesOutput,
    "call": MessageOutput,
    "echo": MessageOutput,
    "type": list[str],
    "find": list[str],
    "info": ServiceOutput,
}
COMMAND = Command(service, panel=PANEL, position=620, json=OUTPUTS)


_SERVICE = Named(
    "service", "srv", "/sim/pause", "std_srvs/srv/SetBool", request="{name}",
    names=lambda node: node.services(), types_of=lambda node, name: node.types_of_service(name),
)  # fmt: skip
_SERVICE.add_list(service)
_SERVICE.add_type_and_find(service)
_SERVICE.add_info(service, "Show who serves and who calls a service.")


class EchoOptions(NamedTuple):
    name: Annotated[str, argument("SERVICE", "Name of the service.")]
    given_type: Annotated[str, argument("[TYPE]", "Type of the service; by default that of its server.")] = ""
    once: OnceOption = False
    json: Annotated[bool, flag("--json", "One call a line as JSON; lists of bytes in Base64.")] = False
    form: FormOptions = FormOptions()
    types: TypesOption = None
    timeout: WithinOption = None
    ros2: Ros2Options = Ros2Options()


EVENTS = ("REQUEST_SENT", "REQUEST_RECEIVED", "RESPONSE_SENT", "RESPONSE_RECEIVED")


@service.command()
@with_options
def echo(options: EchoOptions) -> None:
    """Print the calls of a service whose server or clients have introspection on.

    ROS 2 nodes publish their calls where `configure_introspection` was called;
    the services of MicroSim do not.

    \b
    Examples:
      microsim service echo /add_two_ints
      microsim service echo /dock dock_msgs/srv/Dock --types ~/ws/src/dock_msgs
    """
    from microsim.messages.type_files import event_type

    form = options.form.of(options.json)

    with connected(options.types) as node:
        found = [options.given_type] if options.given_type else node.types_of_service(options.name)
        topic = f"{node.absolute(options.name, 'service')}/_service_event"
        writers = node.endpoints(lambda view: view.on(topic, is_writer=True))
        published = {each.type.removesuffix("_Event") for _, each in writers}
        chosen = next((each for each in found if each in published), found[0])  # services may have several types
        subscription = node.subscribe(topic, type=event_type(node.type_name(chosen, "srv")))
        if not writers:
            note(f"nothing publishes {topic}: is introspection of the service enabled on its server or a client?")
        for message in messages_of(subscription, options.timeout):
            shown = plain_form(message, form)
            event = message.info.event_type
            shown["info"]["event_type"] = EVENTS[event] if event < len(EVENTS) else event
            print_plain(shown, form)
            if options.once:
                return
            if not (form.is_json or form.is_csv):
                print("---", flush=True)


class CallOptions(NamedTuple):
    name: Annotated[str, argument("SERVICE", "Name of the service.")]
    given: GivenArgument = None
    stdin: StdinOption = False
    field: Annotated[str, option("--field PATH", "Print only this field of the response.")] = ""
    type_name: Annotated[str, option("--type TYPE", "Type of the service, where it has several.")] = ""
    rate: Annotated[float | None, option("--rate -r HZ", "Call again, HZ times per second.", min=0.001)] = None
    json: JsonOption = False
    types: TypesOption = None
    timeout: AnswerOption = 5.0
    ros2: Ros2Options = Ros2Options()


@service.command()
@with_options
def call(options: CallOptions) -> None:
    """Call a service and print its response. Exit code 1 when there is no answer.

    \b
    Examples:
      microsim service call /sim/pause "{data: true}"
      microsim service call /sim/pause std_srvs/srv/SetBool "{data: true}"
      microsim service call /sim/reset
      microsim service call /add_two_ints "{a: 1, b: 2}" --field sum
    """
    type_name, values = type_and_values(options.given or [], "SERVICE", options.stdin)
    request, type_name = read_values(values or "{}"), options.type_name or type_name
    with connected(options.types) as node:
        start, count = time.monotonic(), 0
        while True:
            response = node.call(options.name, request, type=type_name, timeout=options.timeout)
            print_message(response, options.field, options.json, full=True)
            if options.rate is None:
                return
            count += 1
            time.sleep(max(0.0, start + count / options.rate - time.monotonic()))
