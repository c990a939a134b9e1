"""The arguments of `trainer-kai why`: the state of a workload or pod, and why it waits.

It reads from the API server with the rights of the user, and sends no request to our processes.
"""

import argparse
import json
from typing import TYPE_CHECKING, Final

from trainer_kai.cli.input.named_kinds import EXAMPLES, KIND_OF_NAME
from trainer_kai.cli.options import (
    Subcommands,
    add_cluster_flags,
    add_default_queue_flag,
    add_output_flag,
    add_scheduler_flag,
    connection,
)
from trainer_kai.errors import ConfigError, FieldError

if TYPE_CHECKING:
    from trainer_kai.cli.commands.why.report import TrainJobReport

_WAITS: Final = 1
_FORMS: Final = (
    "the name of a workload or pod, or trainjob/NAME, jobset/NAME, job/NAME, pod/NAME or the kind "
    "of another workload, such as pytorchjob/NAME, rayjob/NAME, lws/NAME or deployment/NAME"
)


def add_why(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "why",
        help="the state of a TrainJob, JobSet, Job or pod, and why it waits",
        description="Show the state of a TrainJob, JobSet, Job or pod of a cluster, which of its"
        " PodGroups wait, and why.",
        epilog="Exit code: 0 if nothing waits; 1 if something waits; 2 if the state is unknown: the"
        " object does not exist, or you may not read it.",
    )
    parser.add_argument(
        "subject",
        metavar="NAME",
        nargs="?",
        default="",
        help="trainjob/NAME, jobset/NAME, job/NAME (a batch Job), pod/NAME, or another workload"
        f" ({EXAMPLES}; plurals and short names too); a"
        " name alone is that of a TrainJob, or else of a JobSet, a Job or a pod (default: all"
        " workloads that wait)",
    )
    parser.add_argument(
        "-n", "--namespace", default="", help="the namespace (default: that of the context)"
    )
    add_output_flag(parser, "text")
    add_scheduler_flag(parser)
    add_default_queue_flag(parser)
    add_cluster_flags(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - not every command needs a cluster, and it is slow to import

    if not args.subject:
        return _run_all(args)
    from trainer_kai.cli.commands.why.output import as_json, as_text  # noqa: PLC0415 - as above
    from trainer_kai.cli.output.table import screen_width  # noqa: PLC0415 - as above

    report = asyncio.run(_fetch_report(args, *parse_subject(args.subject)))
    if args.output == "json":
        print(json.dumps(as_json(report), indent=2))
    else:
        print(as_text(report, screen_width()))
    return _WAITS if report.waits else 0


def _run_all(args: argparse.Namespace) -> int:
    """Explain all workloads of the namespace that wait."""
    from trainer_kai.cli.commands.list.command import fetch_rows  # noqa: PLC0415 - as above
    from trainer_kai.cli.commands.list.output import as_document, as_sentences  # noqa: PLC0415
    from trainer_kai.cli.output.table import screen_width  # noqa: PLC0415 - as above

    rows, listing, namespace = fetch_rows(args, namespace=args.namespace, only_waiting=True)
    if args.output == "json":
        print(json.dumps(as_document(rows, listing.notes), indent=2))
    else:
        print(as_sentences(rows, listing.now, namespace, screen_width()))
        for note in listing.notes:
            print(f"note: {note}")
    return _WAITS if rows else 0


def parse_subject(text: str) -> tuple[str, str]:
    """Return the kind and the name; the kind is "" if the text is only a name."""
    given, slash, name = text.rpartition("/")
    short, _, group = given.lower().partition(".")
    named = KIND_OF_NAME.get(short)
    is_kind = named is not None and _is_group(group, named.group)
    if (slash and not is_kind) or name in ("", ".", ".."):
        raise ConfigError([FieldError("NAME", f"{text!r} must be {_FORMS}")])
    return named.kind if slash and named is not None else "", name


def _is_group(given: str, group: str) -> bool:
    """Say whether a group, also with a version before it, is that of a kind."""
    return not given or given == group or (bool(group) and given.endswith(f".{group}"))


async def _fetch_report(args: argparse.Namespace, kind: str, name: str) -> "TrainJobReport":
    from trainer_kai.api.meta import Key  # noqa: PLC0415 - as above
    from trainer_kai.cli.commands.why.fetch import fetch_report  # noqa: PLC0415 - as above
    from trainer_kai.cli.commands.why.snapshot import WhySubject  # noqa: PLC0415 - as above
    from trainer_kai.kube.client import command_client  # noqa: PLC0415 - as above

    async with command_client(**connection(args)) as client:
        key = Key(args.namespace or client.rest_config.namespace, name)
        subject = WhySubject(kind, key, args.scheduler_name, args.default_queue)
        return await fetch_report(client, subject)
