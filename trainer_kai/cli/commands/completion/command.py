"""`trainer-kai completion`: prints a script for a shell, which completes commands and flags.

The script is made from the parser and asks no process, so that completion is fast.
"""

import argparse
from typing import Final

from trainer_kai.cli.options import Subcommands

_SHELLS: Final = ("bash", "zsh", "tcsh")


def add_completion(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a script that completes commands and flags in a shell",
        description="Print a completion script. For bash: source <(trainer-kai completion bash)",
        epilog="Exit code: 0.",
    )
    parser.add_argument("shell", choices=_SHELLS, help="the shell")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    import shtab  # noqa: PLC0415 - no other command needs it

    from trainer_kai.cli.main import build_parser  # noqa: PLC0415 - it imports this module

    print(shtab.complete(build_parser("trainer-kai"), args.shell))
    return 0
