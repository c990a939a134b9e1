"""`trainer-kai why`: the state of a TrainJob, and why its PodGroups wait.

It reads from the API server with the rights of the user, and asks no process of ours.
"""

import argparse
import json
from typing import TYPE_CHECKING, Final

from trainer_kai.api.meta import Key
from trainer_kai.api.names import SCHEDULER_NAME
from trainer_kai.cli.commands.why.text_output import as_json, as_text
from trainer_kai.cli.options import add_cluster_flags
from trainer_kai.cli.output.table import screen_width
from trainer_kai.errors import ConfigError, FieldError

if TYPE_CHECKING:
    from trainer_kai.cli.commands.why.report import TrainJobReport

__all__ = ["add_why"]

_WAITS: Final = 1
_TRAINJOB: Final = frozenset({"trainjob", "trainjobs"})
_POD: Final = frozenset({"pod", "pods", "po"})


def add_why(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "why",
        help="where a TrainJob is on its way, and why it waits",
        description="Say where a TrainJob is on its way, which of its units wait, and why.",
        epilog="Exit code: 0 if nothing waits; 1 if something does; 2 if nobody can say.",
    )
    parser.add_argument("subject", metavar="NAME", help="a TrainJob; or trainjob/NAME, pod/NAME")
    parser.add_argument("-n", "--namespace", default="", help="instead of that of the context")
    parser.add_argument("-o", dest="output", choices=("text", "json"), default="text")
    parser.add_argument("--scheduler-name", default=SCHEDULER_NAME, help="as the site has it")
    add_cluster_flags(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - not every command needs a cluster, and it is slow to import

    report = asyncio.run(_fetch_report(args, *_parse_subject(args.subject)))
    if args.output == "json":
        print(json.dumps(as_json(report), indent=2))
    else:
        print(as_text(report, screen_width()))
    return _WAITS if report.waits else 0


def _parse_subject(text: str) -> tuple[str, str]:
    """Return kind and name of what is asked about."""
    kind, slash, name = text.partition("/")
    if not slash:
        kind, name = "trainjob", text
    kind = kind.lower().partition(".")[0]
    if kind not in _TRAINJOB | _POD or name in ("", ".", ".."):
        message = f"{text!r} must be the name of a TrainJob, trainjob/NAME or pod/NAME"
        raise ConfigError([FieldError("NAME", message)])
    return kind, name


async def _fetch_report(args: argparse.Namespace, kind: str, name: str) -> "TrainJobReport":
    from trainer_kai.cli.commands.why.fetch import fetch_pod_report, fetch_trainjob_report  # noqa: PLC0415 - as above
    from trainer_kai.kube.client import command_client  # noqa: PLC0415 - as above

    async with command_client(kubeconfig=args.kubeconfig, context=args.context) as client:
        key = Key(args.namespace or client.rest_config.namespace, name)
        fetch_report = fetch_pod_report if kind in _POD else fetch_trainjob_report
        return await fetch_report(client, key, args.scheduler_name)
