"""The entry point of `trainer-kai`: parses arguments, runs a command, returns the exit code.

Each command's `command.py` has its arguments and imports the rest when it runs: all of them are
imported here, before any command starts.
"""

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from trainer_kai.cli.commands.completion.command import add_completion
from trainer_kai.cli.commands.doctor.command import add_doctor
from trainer_kai.cli.commands.list.command import add_list
from trainer_kai.cli.commands.migrate.command import add_migrate
from trainer_kai.cli.commands.plan.command import add_plan
from trainer_kai.cli.commands.queue.command import add_queue
from trainer_kai.cli.commands.run.command import add_run
from trainer_kai.cli.commands.simulate.command import add_simulate
from trainer_kai.cli.commands.top.command import add_top
from trainer_kai.cli.commands.why.command import add_why
from trainer_kai.errors import ConfigError, TrainerKaiError
from trainer_kai.version import version_text

_KUBECTL_PLUGIN: Final = "kubectl-trainer_kai"  # kubectl runs it for `kubectl trainer-kai`
_DISK_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def build_parser(prog: str = "") -> argparse.ArgumentParser:
    """Return the parser of all commands; *prog* is how it calls itself, if not as it was called."""
    is_plugin = PurePath(sys.argv[0]).stem == _KUBECTL_PLUGIN
    parser = argparse.ArgumentParser(
        prog=prog or ("kubectl trainer-kai" if is_plugin else "trainer-kai"),
        description="Gang scheduling of TrainJobs: preview, simulate, explain, manage queues.",
    )
    parser.add_argument(
        "--version",
        action="version",
        version=version_text(sys.version_info),
        help="print the versions of trainer-kai and of Python",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_plan(commands)
    add_simulate(commands)
    add_list(commands)
    add_why(commands)
    add_queue(commands)
    add_top(commands)
    add_doctor(commands)
    add_migrate(commands)
    add_run(commands)
    add_completion(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; print an error of the user or of the cluster as one line."""
    args = build_parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal cannot show is no failure.
        sys.stdout.reconfigure(errors="replace")
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except ConfigError as error:
        for fault in error.faults:
            print(f"trainer-kai: {fault}", file=sys.stderr)
        return 2
    except TrainerKaiError as error:
        if not _is_api_error(error):
            raise  # a bug of ours
        print(f"trainer-kai: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()  # the reader has closed the pipe
        return 141
    except OSError as error:
        if error.errno not in _DISK_FULL_ERRNOS:
            raise
        _discard_output()
        print(f"trainer-kai: cannot write the output: {error.strerror}", file=sys.stderr)
        return 2
    return code


def _is_api_error(error: TrainerKaiError) -> bool:
    from trainer_kai.kube.rest.response import ApiError  # noqa: PLC0415 - slow to import

    return isinstance(error, ApiError)


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
