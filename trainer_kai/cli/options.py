"""Flags that several commands share."""

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from trainer_kai.api.names import DEFAULT_QUEUE, SCHEDULER_NAME
from trainer_kai.errors import ConfigError, FieldError

if TYPE_CHECKING:
    from trainer_kai.policy.queueing.kind_defaults import KindDefaults

# What `add_subparsers` returns has no public name.
Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001

_DURATION: Final = re.compile(r"(\d+)(ms|s|m|h|)")
_UNITS_S: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIMEOUT_S: Final = 30.0


class Connection(TypedDict):
    """How a command reaches its cluster: the arguments of `command_client`."""

    kubeconfig: str
    context: str
    user: str
    timeout_s: float


def add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="the kubeconfig file of the cluster"
    )
    parser.add_argument("--context", default="", metavar="NAME", help="the context to use in it")
    parser.add_argument(
        "--as",
        dest="user_as",
        default="",
        metavar="USER",
        help="send all requests as this user, which needs the permission to impersonate",
    )
    parser.add_argument(
        "--request-timeout",
        type=_duration_s,
        default=_TIMEOUT_S,
        metavar="TIME",
        help="how long to wait for one response, such as 5s or 1m; 0 waits for ever (default: 30s)",
    )


def connection(args: argparse.Namespace) -> Connection:
    """Return the flags of `add_cluster_flags`."""
    return Connection(
        kubeconfig=args.kubeconfig,
        context=args.context,
        user=args.user_as,
        timeout_s=args.request_timeout,
    )


def _duration_s(text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} must be a time such as 30s, 5m or 1h")
    return int(found[1]) * _UNITS_S[found[2]] or float("inf")


def add_namespace_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--namespace", default="", help="the namespace (default: that of the context)"
    )
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="all namespaces of the cluster"
    )


def add_formats_flag(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """Add the output format; the first one is the default."""
    parser.add_argument(
        "-o",
        "--output",
        choices=formats,
        default=formats[0],
        help=f"the output format (default: {formats[0]})",
    )


def add_files_flag(
    parser: argparse.ArgumentParser, what: str, *, required: bool = True, more: str = ""
) -> None:
    parser.add_argument(
        "-f",
        dest="files",
        metavar="FILE",
        action="append",
        default=[],
        required=required,
        help=f"{what}; - is standard input; may be repeated{more}",
    )


def add_output_flag(
    parser: argparse.ArgumentParser, default: str = "table", more: str = ""
) -> None:
    help_text = f"the output format (default: {default}){more}"
    parser.add_argument(
        "-o", "--output", choices=(default, "json"), default=default, help=help_text
    )


def add_scheduler_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler-name",
        default=SCHEDULER_NAME,
        metavar="NAME",
        help=f"the setting scheduler_name of the cluster (default: {SCHEDULER_NAME})",
    )


def add_default_queue_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--default-queue",
        default=DEFAULT_QUEUE,
        metavar="QUEUE",
        help=f"the setting default_queue of the cluster (default: {DEFAULT_QUEUE})",
    )


def add_kind_defaults_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kind-defaults",
        default="",
        metavar="KIND=CLASS",
        help="the setting kind_defaults of the cluster, such as Deployment.apps=train,PyTorchJob="
        "train/non-preemptible (default: the classes of KAI)",
    )


def kind_defaults(args: argparse.Namespace) -> "KindDefaults":
    from trainer_kai.api.requested_values import PREEMPTIBILITIES  # noqa: PLC0415 - slow to import
    from trainer_kai.policy.queueing.kind_defaults import (  # noqa: PLC0415 - most commands need none
        NO_CHANGES,
        KindDefaults,
    )

    if not args.kind_defaults:
        return NO_CHANGES
    from trainer_kai.service.setting_checks import read_kind_defaults  # noqa: PLC0415 - slow to import

    try:
        return KindDefaults(read_kind_defaults(args.kind_defaults))
    except ValueError as error:
        message = (
            f"{error.args[0]!r} must be a kind and a PriorityClass, such as Deployment.apps=train, "
            f"or also {' or '.join(PREEMPTIBILITIES)}, such as Job.batch=train/preemptible"
        )
        raise ConfigError([FieldError("--kind-defaults", message)]) from error


def add_renamed_flag(parser: argparse.ArgumentParser, old: str, new: str) -> None:
    """Refuse the old name of a flag, with its new name."""
    parser.add_argument(old, action=_RenamedFlag, const=new, nargs="?", help=argparse.SUPPRESS)


class _RenamedFlag(argparse.Action):
    """A flag that ends with an error: its constant is its name now."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002 - argparse passes it
        values: str | Sequence[Any] | None,  # noqa: ARG002 - as above
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string} was renamed; use {self.const}")
