"""`trainer-kai doctor`: whether an installation can work, and what would be right where it cannot.

It reads with the rights of the user, and what it makes are dry runs: nothing is stored.
"""

import argparse
import json
from typing import TYPE_CHECKING, Final

from trainer_kai.api.names import SCHEDULER_NAME
from trainer_kai.cli.table import screen_width
from trainer_kai.errors import ConfigError, FieldError

if TYPE_CHECKING:
    from trainer_kai.cli.doctor.facts import Facts

__all__ = ["add_doctor"]

_NAMESPACE: Final = "trainer-kai"
_ANSWER_S: Final = 15.0  # three webhooks of others may take 5 s each


def add_doctor(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "doctor",
        help="whether the installation works, and what would be right where it does not",
        description="Examine an installation by reads and dry runs, with your own rights.",
        epilog="Exit code: 0 if a TrainJob is taken care of and nothing is at fault; 1 if "
        "something is; 2 if nobody can say.",
    )
    parser.add_argument(
        "-n", "--namespace", default=_NAMESPACE, help=f"where it is installed: {_NAMESPACE}"
    )
    parser.add_argument(
        "--try-in", default="", metavar="NAMESPACE", help="for dry runs; else that of the context"
    )
    parser.add_argument("-o", dest="output", choices=("text", "json"), default="text")
    parser.add_argument("--scheduler-name", default=SCHEDULER_NAME, help="as the site has it")
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--context", default="")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - not everybody needs a cluster, and it is slow to import

    from trainer_kai.cli.doctor.checks import examine  # noqa: PLC0415 - as above
    from trainer_kai.cli.doctor.place import named_in_vain  # noqa: PLC0415 - as above
    from trainer_kai.cli.doctor.telling import as_json, as_text, exit_code  # noqa: PLC0415

    facts = asyncio.run(_look(args))
    in_vain = args.try_in and named_in_vain(facts, args.try_in)
    if in_vain:
        raise ConfigError([FieldError("--try-in", in_vain)])
    findings = examine(facts)
    if args.output == "json":
        print(json.dumps(as_json(findings), indent=2))
    else:
        print(as_text(findings, screen_width()))
    return exit_code(findings)


async def _look(args: argparse.Namespace) -> "Facts":
    import os  # noqa: PLC0415 - as above

    from trainer_kai.cli.doctor.read import Wish, look  # noqa: PLC0415 - as above
    from trainer_kai.clock import SystemClock  # noqa: PLC0415 - as above
    from trainer_kai.kube.client import Patience  # noqa: PLC0415 - as above
    from trainer_kai.kube.connect import process_client  # noqa: PLC0415 - as above
    from trainer_kai.kube.locate import find_access  # noqa: PLC0415 - as above

    clock = SystemClock()
    access = await find_access(os.environ, clock, kubeconfig=args.kubeconfig, context=args.context)
    async with process_client(access, clock) as client:
        patient = client.with_patience(Patience(timeout_s=_ANSWER_S, total_s=5.0))
        return await look(patient, Wish(args.namespace, args.scheduler_name, args.try_in))
