"""The chain from the command line: `python -m e2e.cluster up|down|status|kubeconfig|logs|build`."""

import argparse
import asyncio
import os
import re
import sys

from aiohttp import ClientError

from e2e.cluster import commands
from e2e.cluster.api import ApiError
from e2e.cluster.binaries import OTHERS, ensure_built
from e2e.cluster.bringup import ensure_template
from e2e.cluster.toolchain import BuildError


def main(arguments: list[str]) -> int:
    """Do what was asked; 2 for what cannot be asked, 130 and 141 as shells do."""
    asked = parser().parse_args(arguments)
    try:
        _run(asked)
        sys.stdout.flush()
    except (commands.CommandError, BuildError, ApiError, ClientError) as error:
        print(f"e2e.cluster: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on
        return 141
    return 0


def _run(asked: argparse.Namespace) -> None:
    match asked.command:
        case "up":
            commands.up(asked.name, asked.nodes, asked.gpus, kube_scheduler=asked.kube_scheduler)
        case "down":
            commands.down(asked.name, every=asked.all)
        case "status":
            commands.status()
        case "kubeconfig":
            print(commands.kubeconfig_path(asked.name, asked.service_account))
        case "logs":
            commands.logs(asked.name, asked.program, asked.lines)
        case "build":
            built = ensure_built(*OTHERS)
            asyncio.run(ensure_template())
            for program in built.programs.values():
                print(program)


def parser() -> argparse.ArgumentParser:
    """Return what the command line may say."""
    commands_parser = argparse.ArgumentParser(
        prog="python -m e2e.cluster",
        description="A real Kubeflow Trainer control plane on this machine, without containers.",
    )
    verbs = commands_parser.add_subparsers(dest="command", required=True)
    up = verbs.add_parser("up", help="start a cluster that stays until `down`")
    up.add_argument(
        "name", nargs="?", default="chain", type=_name, help="a number is added when it is taken"
    )
    up.add_argument("--nodes", type=_count, default=4, metavar="N", help="GPU nodes (4)")
    up.add_argument("--gpus", type=_count, default=8, metavar="N", help="GPUs of each node (8)")
    up.add_argument("--kube-scheduler", action="store_true", help="run kube-scheduler as well")
    down = verbs.add_parser("down", help="end a cluster and every process of it")
    down.add_argument("name", nargs="?")
    down.add_argument("--all", action="store_true", help="every cluster started by `up`")
    verbs.add_parser("status", help="list clusters and their processes")
    config = verbs.add_parser("kubeconfig", help="print the path of a kubeconfig")
    config.add_argument("name", nargs="?")
    config.add_argument(
        "--service-account", metavar="NAMESPACE/NAME", help="not the administrator's"
    )
    logs = verbs.add_parser("logs", help="print the end of the programs' logs")
    logs.add_argument("name", nargs="?")
    logs.add_argument("program", nargs="?")
    logs.add_argument("-n", "--lines", type=_count, default=20, metavar="N")
    verbs.add_parser("build", help="build all programs now and print where they are")
    return commands_parser


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not lower-case letters, digits and dashes")
    return text


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below zero")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
