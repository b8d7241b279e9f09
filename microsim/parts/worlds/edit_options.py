"""`microsim bundle edit`: its options, and what it prints."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from microsim.cli.precompile import compiling
from microsim.cli.terminal import ShareProgress, interruptible
from microsim.errors import BundleError, UsageError
from microsim.options import flag, option
from microsim.parts.view.attachment import PortOption
from microsim.parts.worlds.bundle_sources import BundleArgument, describe_bundle, refuse_existing

if TYPE_CHECKING:
    from microsim.bundle import Bundle

_APPLY = "Apply the edits of this file and end; no browser is needed."
_START = "Open the page with the edits of this file."


class EditOptions(NamedTuple):
    source: BundleArgument
    output: Annotated[
        Path | None, option("--output -o FOLDER", "The edited world.", show_default="NAME_edited here")
    ] = None
    in_place: Annotated[bool, flag("--in-place", "Replace BUNDLE by the edited world.")] = False
    apply: Annotated[Path | None, option("--apply FILE", _APPLY)] = None
    edits: Annotated[Path | None, option("--edits FILE", _START)] = None
    open: Annotated[bool, flag("--open", "Open the page in a browser.")] = False
    view_port: PortOption = None


def edit(options: EditOptions) -> None:
    """Edit a world in the browser: drivable area, start, scale, level, crop, names of objects.

    The edited world is written to a new folder when you press Save, and the
    edits to a file next to it, which --apply applies again. BUNDLE stays as it
    is unless you give --in-place; it is replaced only when the edited world is
    complete and valid.

    \b
    Examples:
      microsim bundle edit my_street --open
      microsim bundle edit my_street --apply edits.yaml -o my_better_street
      microsim bundle edit my_street --edits my_street_edited_edits.yaml --open
    """
    from microsim.bundle import load_bundle

    if options.in_place and options.output is not None:
        raise UsageError("expected one of --output and --in-place, found both")
    if options.apply is not None and options.edits is not None:
        raise UsageError("expected one of --apply and --edits, found both")
    bundle = load_bundle(options.source)
    target = bundle.root if options.in_place else options.output or Path(f"{bundle.root.resolve().name}_edited")
    if not options.in_place:
        refuse_existing(target)
    if options.apply is not None:
        _apply(bundle, options.apply, target, options.in_place)
    else:
        _serve(bundle, target, options)


def _apply(bundle: Bundle, file: Path, target: Path, in_place: bool) -> None:
    from microsim.bundle import load_bundle
    from microsim.documents.yaml_text import to_yaml
    from microsim.parts.worlds.apply_edits import replace_edited, write_edited
    from microsim.parts.worlds.edits import cut_outs, read_edits, scenario_of

    edits = read_edits(file)
    try:
        (replace_edited if in_place else write_edited)(bundle, edits, target, ShareProgress("writing").count)
    except BundleError as error:
        raise BundleError([replace(each, file=str(file)) for each in error.problems]) from None
    describe_bundle(target)
    if edits.cut_out:
        cuts = cut_outs(edits.cut_out, edits.frame, load_bundle(target).heightmap)
        print(f"to put what was cut out back where it was:\n{to_yaml(scenario_of(cuts, str(target)))}", end="")


def _serve(bundle: Bundle, target: Path, options: EditOptions) -> None:
    """Until Ctrl-C; edits that were not saved are kept in a file."""
    import webbrowser
    from threading import Event

    from microsim.parts.view.web.interface import PageOptions, need_extra
    from microsim.parts.worlds.edits import read_edits

    need_extra("the page")
    from microsim.parts.worlds.editor import WorldEditor

    edits = None if options.edits is None else read_edits(options.edits)
    page = PageOptions(port=8080 if options.view_port is None else options.view_port)
    with compiling():
        editor = WorldEditor(bundle, target, options.in_place, page, edits, options.source)
    with editor, interruptible():
        print(f"the page is at {editor.address}", file=sys.stderr, flush=True)
        print(f"Save writes {target}; Ctrl-C ends", file=sys.stderr, flush=True)
        if options.open:
            webbrowser.open(editor.address)
        with suppress(KeyboardInterrupt):
            Event().wait()
        if editor.has_unsaved_edits:
            kept = editor.keep_edits()
            print(f"unsaved edits are in {kept}; open them again with --edits {kept}", file=sys.stderr, flush=True)
