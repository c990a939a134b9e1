"""The arguments of `trainer-kai plan`, which previews workloads before they are submitted."""

import argparse

from trainer_kai.cli.options import (
    Subcommands,
    add_cluster_flags,
    add_default_queue_flag,
    add_files_flag,
    add_kind_defaults_flag,
    add_output_flag,
    add_scheduler_flag,
)


def add_plan(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "plan",
        help="preview the PodGroups, the queue and the findings of a workload",
        description="Preview TrainJobs and other workloads before they are submitted:"
        " stages, PodGroups, findings.",
        epilog="Exit code: 0; 1 if a workload can never run; 2 if the input is invalid.",
    )
    add_files_flag(
        parser,
        "TrainJobs, JobSets, Jobs, CronJobs and other workloads, such as RayClusters and"
        " Deployments, runtimes and namespaces, and what to compare them"
        " with: Nodes, Queues, PriorityClasses, Topologies, DeviceClasses, ResourceSlices,"
        " DeviceTaintRules, ResourceClaims and their templates",
    )
    add_output_flag(parser, more="; json has the PodGroups as they will be applied")
    parser.add_argument(
        "-n",
        "--namespace",
        default="default",
        help="the namespace of objects without one (default: default)",
    )
    parser.add_argument(
        "--mode",
        choices=("bundled", "external"),
        default="bundled",
        help="the setting mode of the cluster: trainer-kai's scheduler binds pods (bundled), or an"
        " existing KAI (external) (default: bundled)",
    )
    add_scheduler_flag(parser)
    add_default_queue_flag(parser)
    add_kind_defaults_flag(parser)
    add_cluster_flags(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.plan.plan_files import plan_files  # noqa: PLC0415 - slow to import

    return plan_files(args)
