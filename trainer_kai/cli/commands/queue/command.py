"""`trainer-kai queue` and its verbs; the code of a verb is imported when the verb runs."""

import argparse
from decimal import Decimal, InvalidOperation

from trainer_kai.api.names import DEFAULT_QUEUE, SCHEDULER_NAME
from trainer_kai.cli.options import add_cluster_flags
from trainer_kai.policy.queueing.queue_access import QueueAccessMode

__all__ = ["add_queue"]

_ACCESS = [str(it) for it in QueueAccessMode]


def add_queue(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("queue", help="what queues have, and which namespaces use them")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    _add_list(verbs)
    for add in (_add_create, _add_allow, _add_close, _add_open):
        verb = add(verbs)
        verb.epilog = "Exit code: 0; 2 if it cannot be done: a right that is missing is named."
        verb.add_argument("--dry-run", action="store_true", help="print what would be written")
        add_cluster_flags(verb)


def _add_list(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "list",
        help="all queues as a tree",
        description="Show quota, limit, what is used, what waits and who may use it, of all queues "
        "as a tree.",
        epilog="Exit code: 0; 2 if queues cannot be read.",
    )
    verb.add_argument("-o", dest="output", choices=("table", "json"), default="table")
    verb.add_argument(
        "--unannotated",
        choices=_ACCESS,
        default=str(QueueAccessMode.OPEN),
        help="queue_access.unannotated as the site has it",
    )
    add_cluster_flags(verb)
    verb.set_defaults(run=_list)


def _add_create(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        "create",
        help="make a queue, closed until a namespace is let in",
        description="Make a queue whose GPUs are counted; CPU and memory are not. -1 is no bound.",
    )
    verb.add_argument("queue", metavar="NAME")
    verb.add_argument("--parent", default="", metavar="QUEUE")
    verb.add_argument("--gpu-quota", type=_gpu_amount, default=0, metavar="N", help="owed: 0")
    verb.add_argument("--gpu-limit", type=_gpu_amount, default=-1, metavar="N", help="at most: -1")
    verb.add_argument("--weight", type=_weight, default=1, metavar="N", help="of what is left: 1")
    verb.add_argument("--access", choices=_ACCESS, default=str(QueueAccessMode.CLOSED))
    verb.set_defaults(run=_create)
    return verb


def _add_allow(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        "allow",
        help="let a namespace, users or groups use a queue",
        description="Let what runs in a namespace use a closed queue, and users and groups submit "
        "to it: in that namespace, or without -n in every one that may use the queue.",
    )
    verb.add_argument("queue", metavar="QUEUE")
    verb.add_argument("-n", "--namespace", default="", type=_nonempty_name)
    for flag in ("user", "group"):
        name = flag.upper()
        verb.add_argument(
            f"--{flag}",
            action="append",
            default=[],
            type=_nonempty_name,
            metavar=name,
            dest=f"{flag}s",
        )
    verb.set_defaults(run=_allow)
    return verb


def _add_close(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        "close",
        help="let only those use a queue that are allowed to",
        description="Close a queue, and those below it that say nothing themselves.",
    )
    verb.add_argument("queue", metavar="QUEUE")
    verb.add_argument(
        "--from-usage", action="store_true", help="first grant the namespaces that use it now"
    )
    verb.add_argument("--default-queue", default=DEFAULT_QUEUE, help="as the site has it")
    verb.add_argument("--scheduler-name", default=SCHEDULER_NAME, help="as the site has it")
    verb.set_defaults(run=_close)
    return verb


def _add_open(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        "open",
        help="let every namespace use a queue",
        description="Open a queue, and those below it that say nothing themselves. Grants stay.",
    )
    verb.add_argument("queue", metavar="QUEUE")
    verb.set_defaults(run=_open)
    return verb


def _nonempty_name(text: str) -> str:
    """Read a name; an empty one, from a variable that is not set, would grant something else."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty: leave the option out, or name one")
    return text


def _gpu_amount(text: str) -> float:
    """Read a number of GPUs; a whole one stays whole."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or (number < 0 and number != -1):
        message = f"{text!r} must be a number from 0 on, or -1 for no bound"
        raise argparse.ArgumentTypeError(message)
    return int(number) if number == int(number) else float(number)


def _weight(text: str) -> float:
    """Read a weight."""
    if (number := _gpu_amount(text)) < 0:
        message = f"{text!r} must be a number from 0 on: a weight has no bound"
        raise argparse.ArgumentTypeError(message)
    return number


def _list(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.list_queues import run_list  # noqa: PLC0415 - it imports numpy

    return run_list(args)


def _create(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.create import NewQueue, plan_create  # noqa: PLC0415 - as above
    from trainer_kai.cli.commands.queue.execute import run_plan  # noqa: PLC0415 - slow to import

    shares = args.gpu_quota, args.gpu_limit, args.weight
    new = NewQueue(args.queue, args.parent, *shares, QueueAccessMode(args.access))
    return run_plan(args, lambda reader: plan_create(reader, new))


def _allow(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.allow import plan_allow  # noqa: PLC0415 - slow to import
    from trainer_kai.cli.commands.queue.execute import run_plan  # noqa: PLC0415 - as above
    from trainer_kai.cli.commands.queue.grants import make_grant  # noqa: PLC0415 - as above

    grant = make_grant(args.queue, args.namespace, args.users, args.groups)
    return run_plan(args, lambda reader: plan_allow(reader, grant))


def _close(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.execute import run_plan  # noqa: PLC0415 - slow to import
    from trainer_kai.cli.commands.queue.open_close import plan_close  # noqa: PLC0415 - as above
    from trainer_kai.cli.commands.queue.usage import SiteSettings  # noqa: PLC0415 - as above

    settings = SiteSettings(args.scheduler_name, args.default_queue) if args.from_usage else None
    return run_plan(args, lambda reader: plan_close(reader, args.queue, settings))


def _open(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.queue.execute import run_plan  # noqa: PLC0415 - slow to import
    from trainer_kai.cli.commands.queue.open_close import plan_open  # noqa: PLC0415 - as above

    return run_plan(args, lambda reader: plan_open(reader, args.queue))
