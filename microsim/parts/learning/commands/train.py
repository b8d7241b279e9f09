from microsim.cli.command import renamed

COMMAND = renamed("policy train")
