"""The arguments of `trainer-kai queue` and of its verbs."""

import argparse
from decimal import Decimal, InvalidOperation
from typing import Final

from trainer_kai.cli.options import (
    Subcommands,
    add_cluster_flags,
    add_default_queue_flag,
    add_output_flag,
    add_scheduler_flag,
)
from trainer_kai.policy.queueing.queue_access import QueueAccessMode

_QUEUE_HELP: Final = "the name of the queue"
_EPILOG: Final = "Exit code: 0; 2 if the change is not possible. Missing permissions are named."
_ACCESS = [str(it) for it in QueueAccessMode]


def add_queue(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "queue",
        help="list and create queues, and control which namespaces and users may use them",
        description="List and create queues, and control which namespaces and users may use them. "
        "A Queue has the units GPU, millicores of CPU (4000 is 4 CPU) and megabytes of memory.",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    _add_list(verbs)
    for add in (_add_create, _add_set, _add_allow, _add_close, _add_open, _add_hold, _add_release):
        verb = add(verbs)
        verb.epilog = _EPILOG
        verb.add_argument(
            "--dry-run",
            action="store_true",
            help="print the changes with their objects, and write nothing",
        )
        add_cluster_flags(verb)


def _add_list(verbs: Subcommands) -> None:
    verb = verbs.add_parser(
        "list",
        help="show all queues with quota, limit, usage and access",
        description="Show all queues as a tree: quota, limit, usage, waiting requests and access.",
        epilog="Exit code: 0; 2 if queues cannot be read.",
    )
    add_output_flag(verb)
    verb.add_argument(
        "--unannotated",
        choices=_ACCESS,
        default=str(QueueAccessMode.OPEN),
        help="the setting queue_access.unannotated of the cluster (default: open)",
    )
    add_cluster_flags(verb)
    verb.set_defaults(run=_list)


def _add_create(
    verbs: Subcommands,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        "create",
        help="create a queue, closed unless --access open is set",
        description="Create a queue with GPU quota and limit. Its quotas of CPU and memory are "
        "the average per GPU of all nodes with GPUs, times --gpu-quota: 0 for 0 GPUs, and "
        "unlimited, with a warning, where nodes cannot be read. Their limits are -1.",
    )
    verb.add_argument("queue", metavar="NAME", help="the name of the new queue")
    verb.add_argument("--parent", default="", metavar="QUEUE", help="its parent (default: none)")
    verb.add_argument(
        "--gpu-quota",
        type=_gpu_amount,
        default=0,
        metavar="N",
        help="GPU quota: reserved for this queue; non-preemptible pods, also those without GPUs, "
        "start only within quotas (default: 0)",
    )
    verb.add_argument(
        "--gpu-limit",
        type=_gpu_amount,
        default=-1,
        metavar="N",
        help="GPU limit (default: -1, unlimited)",
    )
    verb.add_argument(
        "--weight",
        type=_weight,
        default=1,
        metavar="N",
        help="weight for GPUs over quota (default: 1)",
    )
    verb.add_argument(
        "--access",
        choices=_ACCESS,
        default=str(QueueAccessMode.CLOSED),
        help="whether every namespace may use it, or only with a grant (default: closed)",
    )
    verb.set_defaults(run=_create)
    return verb


def _add_set(
    verbs: Subcommands,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        "set",
        help="change quota, limit, weight, priority or parent of a queue",
        description="Change a queue, and say which running work can be reclaimed by that. Its "
        "quotas of CPU and memory follow --gpu-quota as in `create`, unless they are unlimited.",
    )
    verb.add_argument("queue", metavar="QUEUE", help=_QUEUE_HELP)
    for flag, kind, text in (
        ("--gpu-quota", _gpu_amount, "the GPU quota; -1 is unlimited"),
        ("--gpu-limit", _gpu_amount, "the GPU limit; -1 is unlimited"),
        ("--weight", _weight, "the weight for GPUs over quota"),
        ("--priority", int, "the priority among queues of its level"),
    ):
        verb.add_argument(flag, type=kind, metavar="N", help=f"{text} (default: as it is)")
    verb.add_argument(
        "--parent",
        metavar="QUEUE",
        help='its parent; "" makes it a queue at the top (default: as it is)',
    )
    verb.set_defaults(run=_set)
    return verb


def _add_hold(
    verbs: Subcommands,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        "hold",
        help="hold a queue: nothing starts in it, and what runs stays",
        description="Hold a queue and the queues below it: nothing starts there. What runs stays.",
    )
    verb.add_argument("queue", metavar="QUEUE", help=_QUEUE_HELP)
    verb.add_argument(
        "--drain", action="store_true", help="also evict what runs there; it waits and starts again"
    )
    verb.set_defaults(run=_hold)
    return verb


def _add_release(
    verbs: Subcommands,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        "release",
        help="release a queue that is held",
        description="Remove the stop policy of a queue. A parent that is held still holds it.",
    )
    verb.add_argument("queue", metavar="QUEUE", help=_QUEUE_HELP)
    verb.set_defaults(run=_release)
    return verb


def _add_allow(
    verbs: Subcommands,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        "allow",
        help="let a namespace, users or groups use a queue",
        description="Let the workloads of a namespace use a closed queue, and let users and groups "
        "submit to it: in that namespace, or without -n in all namespaces that may use the queue.",
    )
    verb.add_argument("queue", metavar="QUEUE", help=_QUEUE_HELP)
    verb.add_argument(
        "-n",
        "--namespace",
        default="",
        type=_nonempty_name,
        help="the namespace with the workloads that may use the queue",
    )
    for flag in ("user", "group"):
        name = flag.upper()
        verb.add_argument(
            f"--{flag}",
            action="append",
            default=[],
            type=_nonempty_name,
            metavar=name,
            dest=f"{flag}s",
            help=f"a {flag} that may submit to the queue; may be repeated",
        )
    verb.set_defaults(run=_allow)
    return verb


def _add_close(
    verbs: Subcommands,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        "close",
        help="close a queue: only granted namespaces and users may use it",
        description="Close a queue, and the queues below it without an access annotation.",
    )
    verb.add_argument("queue", metavar="QUEUE", help=_QUEUE_HELP)
    verb.add_argument(
        "--from-usage",
        action="store_true",
        help="first grant the namespaces that use the queue now",
    )
    add_default_queue_flag(verb)
    add_scheduler_flag(verb)
    verb.set_defaults(run=_close)
    return verb


def _add_open(
    verbs: Subcommands,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        "open",
        help="open a queue: every namespace may use it",
        description="Open a queue, and the queues below it without an access annotation. Grants "
        "are kept.",
    )
    verb.add_argument("queue", metavar="QUEUE", help=_QUEUE_HELP)
    verb.set_defaults(run=_open)
    return verb


def _nonempty_name(text: str) -> str:
    """Check that a name is not empty: an unset variable would grant something else."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty: set a name, or omit the option")
    return text


def _gpu_amount(text: str) -> float:
    """Parse a number of GPUs; a whole number stays an integer."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or (number < 0 and number != -1):
        message = f"{text!r} must be a number of 0 or more, or -1 (unlimited)"
        raise argparse.ArgumentTypeError(message)
    return int(number) if number == int(number) else float(number)


def _weight(text: str) -> float:
    if (number := _gpu_amount(text)) < 0:
        message = f"{text!r} must be a number of 0 or more"
        raise argparse.ArgumentTypeError(message)
    return number


def _list(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.list_queues import run_list  # noqa: PLC0415 - slow to import

    return run_list(args)


def _create(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.create import NewQueue, plan_create  # noqa: PLC0415 - slow to import
    from trainer_kai.cli.commands.queue.write_plan import run_plan  # noqa: PLC0415 - slow to import

    shares = args.gpu_quota, args.gpu_limit, args.weight
    new = NewQueue(args.queue, args.parent, *shares, QueueAccessMode(args.access))
    return run_plan(args, lambda reader: plan_create(reader, new))


def _allow(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.allow_open_close import plan_allow  # noqa: PLC0415 - slow to import
    from trainer_kai.cli.commands.queue.write_plan import make_grant, run_plan  # noqa: PLC0415 - slow to import

    grant = make_grant(args.queue, args.namespace, args.users, args.groups)
    return run_plan(args, lambda reader: plan_allow(reader, grant))


def _close(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.allow_open_close import plan_close  # noqa: PLC0415 - slow to import
    from trainer_kai.cli.commands.queue.namespace_queues import SiteSettings  # noqa: PLC0415 - slow to import
    from trainer_kai.cli.commands.queue.write_plan import run_plan  # noqa: PLC0415 - slow to import

    settings = SiteSettings(args.scheduler_name, args.default_queue) if args.from_usage else None
    return run_plan(args, lambda reader: plan_close(reader, args.queue, settings))


def _open(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.allow_open_close import plan_open  # noqa: PLC0415 - slow to import
    from trainer_kai.cli.commands.queue.write_plan import run_plan  # noqa: PLC0415 - slow to import

    return run_plan(args, lambda reader: plan_open(reader, args.queue))


def _set(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.set_shares import QueueChange, plan_set  # noqa: PLC0415 - slow to import
    from trainer_kai.cli.commands.queue.write_plan import run_plan  # noqa: PLC0415 - slow to import

    shares = args.gpu_quota, args.gpu_limit, args.weight
    change = QueueChange(args.queue, *shares, args.priority, args.parent)
    return run_plan(args, lambda reader: plan_set(reader, change))


def _hold(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.hold_release import plan_hold  # noqa: PLC0415 - slow to import
    from trainer_kai.cli.commands.queue.write_plan import run_plan  # noqa: PLC0415 - slow to import

    return run_plan(args, lambda reader: plan_hold(reader, args.queue, drains=args.drain))


def _release(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.hold_release import plan_release  # noqa: PLC0415 - slow to import
    from trainer_kai.cli.commands.queue.write_plan import run_plan  # noqa: PLC0415 - slow to import

    return run_plan(args, lambda reader: plan_release(reader, args.queue))
