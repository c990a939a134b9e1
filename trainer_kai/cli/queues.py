"""`trainer-kai queue list`: what each queue is owed, has and asks for.

All of it stands in the Queues: what they have is written by the scheduler, so it is as old as that.
"""

import argparse
import json
import sys

from trainer_kai.api.queue import Queue
from trainer_kai.api.resources import QUEUES
from trainer_kai.errors import ConfigError, FieldError

__all__ = ["add_queue"]


def add_queue(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("queue", help="what queues are owed, have and ask for")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    listed = verbs.add_parser(
        "list",
        help="all queues as a tree",
        description="Show quota, limit, what is used and what waits, of all queues as a tree.",
        epilog="Exit code: 0; 2 if queues cannot be read.",
    )
    listed.add_argument("-o", dest="output", choices=("table", "json"), default="table")
    listed.add_argument("--kubeconfig", default="")
    listed.add_argument("--context", default="")
    listed.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - not everybody needs a cluster, and it is slow to import

    from trainer_kai.cli.queuetables import as_json, as_text, read_queues  # noqa: PLC0415 - numpy

    ends, notes = read_queues(asyncio.run(_fetch(args)))
    for note in notes:
        print(f"trainer-kai: {note}", file=sys.stderr)
    print(json.dumps(as_json(ends), indent=2) if args.output == "json" else as_text(ends))
    return 0


async def _fetch(args: argparse.Namespace) -> list[Queue]:
    from trainer_kai.kube.connect import command_client  # noqa: PLC0415 - as above
    from trainer_kai.kube.errors import NotFound  # noqa: PLC0415 - as above
    from trainer_kai.kube.request import Target  # noqa: PLC0415 - as above

    async with command_client(kubeconfig=args.kubeconfig, context=args.context) as client:
        try:
            return await client.list(Target(QUEUES))
        except NotFound as error:
            message = f"this cluster does not have that kind: {error.refusal.message}"
            raise ConfigError([FieldError(str(QUEUES), message)]) from error
