"""The commands: a file each, named as the command, with one constant `COMMAND` (see `microsim.cli.command`)."""
