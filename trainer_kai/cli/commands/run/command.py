"""The arguments of `trainer-kai run`: one process, or all of them in one for a small cluster."""

import argparse
from typing import Final

from trainer_kai.cli.options import Subcommands

_PROCESSES: Final = ("webhook", "podgrouper", "scheduler", "all")


def add_run(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "run",
        help="run the webhook, the podgrouper, the scheduler, or all of them in one process",
        description="Run a process until it is stopped. `run PROCESS --help` lists the settings.",
        epilog="Exit code: 0 after an orderly stop; 1 after a failure; 2 for invalid settings.",
    )
    names = ", ".join(_PROCESSES)
    parser.add_argument("process", metavar="PROCESS", choices=_PROCESSES, help=names)
    parser.add_argument("settings", nargs=argparse.REMAINDER, help="the settings as flags")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.run.processes import run_named_process  # noqa: PLC0415 - no other command needs all processes

    return run_named_process(args.process, args.settings)
