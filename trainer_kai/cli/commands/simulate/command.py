"""The arguments of `trainer-kai simulate`, which plans the cluster that is described in files.

The planner is the same code as in production.
"""

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from trainer_kai.api.names import SCHEDULER_NAME
from trainer_kai.cli.options import (
    Subcommands,
    add_default_queue_flag,
    add_files_flag,
    add_kind_defaults_flag,
    add_output_flag,
    add_renamed_flag,
    kind_defaults,
)
from trainer_kai.errors import ConfigError, FieldError

if TYPE_CHECKING:
    from trainer_kai.cli.commands.simulate.simulation import SimulationOptions

_MAX_CYCLES: Final = 10_000
_SECOND: Final = 1_000_000_000
_CONSOLIDATION_NOTE: Final = (
    "trainer-kai: consolidation relocates PodGroups here; the running scheduler relocates only"
    " TrainJobs of queues that allow it, as with --relocate allowed"
)


def add_simulate(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "simulate",
        help="plan the cluster that is described in files",
        description="Plan the cluster in files like the scheduler: which pods start on which node,"
        " which PodGroups wait, and why.",
        epilog="Exit code: 0, also if PodGroups wait; 2 if the input is invalid.",
    )
    add_files_flag(parser, "a file with objects, or a snapshot.zip of KAI")
    add_output_flag(parser)
    parser.add_argument("--stats", action="store_true", help="also print how long planning took")
    _add_scheduler_flags(parser)
    _add_policy_flags(parser)
    _add_cycle_flags(parser)
    parser.set_defaults(run=_run)


def _add_scheduler_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--actions",
        metavar="NAMES",
        help="the actions of the scheduler, separated by commas (default: all)",
    )
    parser.add_argument(
        "--scheduler-name",
        default="",
        metavar="NAME",
        help="the setting scheduler_name of the cluster (default: from a SchedulingShard in the"
        f" input, or {SCHEDULER_NAME})",
    )
    add_default_queue_flag(parser)
    add_kind_defaults_flag(parser)
    parser.add_argument(
        "--kueue", action="store_true", help="the setting kueue: Kueue runs in the cluster"
    )
    parser.add_argument(
        "--staleness-grace-period",
        default="60s",
        metavar="DURATION",
        help="how long a PodGroup can run with fewer pods than its minimum (default: 60s)",
    )
    parser.add_argument(
        "--stuck-in-releasing-threshold",
        default="120s",
        metavar="DURATION",
        help="how long after its deadline a terminating pod counts as releasing its resources"
        " (default: 120s)",
    )
    parser.add_argument(
        "--max-termination-grace",
        default="1h",
        metavar="DURATION",
        help="the longest termination grace period of a pod that counts (default: 1h)",
    )


def _add_policy_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--placement",
        choices=("binpack", "spread", "fragmentation"),
        help="the settings policies.gpu_placement and policies.cpu_placement: which node a pod gets"
        " (default: as the SchedulingShard has it, or binpack)",
    )
    parser.add_argument(
        "--victims",
        choices=("kai", "least-work-lost", "fewest-podgroups"),
        default="kai",
        help="the setting policies.victims: the order of victims (default: kai)",
    )
    parser.add_argument(
        "--disruption-budgets",
        choices=("best-effort", "always"),
        default="best-effort",
        help="the setting policies.disruption_budgets: whether reclaim may evict pods although a"
        " PodDisruptionBudget allows no disruption (default: best-effort)",
    )
    parser.add_argument(
        "--relocate",
        choices=("any", "allowed"),
        default="any",
        help="what consolidation may relocate: any PodGroup unless its queue forbids it, or, like"
        " the running scheduler, only TrainJobs of queues that allow it (default: any)",
    )
    add_renamed_flag(parser, "--moves", "--relocate")


def _add_cycle_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cycles", type=int, default=1, metavar="N", help="the number of plans (default: 1)"
    )
    parser.add_argument(
        "--now",
        default="",
        metavar="RFC3339",
        help="the time of the simulation (default: the newest time in the input)",
    )
    parser.add_argument(
        "--evicted-pods",
        choices=("recreate", "vanish"),
        default="recreate",
        help="whether evicted pods are recreated between cycles (default: recreate)",
    )
    parser.add_argument(
        "--terminating-pods",
        choices=("finish", "keep"),
        default="finish",
        help="whether pods that are terminating in the input finish between cycles (default:"
        " finish)",
    )
    parser.add_argument(
        "--nominations",
        choices=("drop", "keep"),
        default="drop",
        help="whether nominations are kept between cycles (default: drop)",
    )


def _run(args: argparse.Namespace) -> int:
    began = time.perf_counter()
    from trainer_kai.cli.commands.simulate import simulation  # noqa: PLC0415 - it imports numpy
    from trainer_kai.cli.commands.simulate.text_output import as_text  # noqa: PLC0415 - as above
    from trainer_kai.cli.input import kai_snapshot  # noqa: PLC0415 - as above
    from trainer_kai.cli.input.documents import display_name, read_files  # noqa: PLC0415 - as above
    from trainer_kai.cli.output.table import screen_width  # noqa: PLC0415 - as above

    faults: list[FieldError] = []
    options = _options(args, faults)
    documents = read_files(args.files, kai_snapshot.unpack, faults)
    if not documents and not faults:
        names = ", ".join(map(display_name, args.files))
        faults.append(FieldError("-f", f"no object found in {names}"))
    simulation_input = None
    try:
        simulation_input = simulation.prepare(documents, options)
    except ConfigError as error:
        faults += error.faults
    if simulation_input is None or faults:
        raise ConfigError(dict.fromkeys(faults))
    for note in simulation_input.notes:
        print(f"trainer-kai: {note}", file=sys.stderr)
    result = simulation.run(simulation_input, options, load_s=time.perf_counter() - began)
    for warning in dict.fromkeys(result.warnings):
        print(f"trainer-kai: {warning}", file=sys.stderr)
    if options.relocate == "any" and _has_relocated(result.document):
        print(_CONSOLIDATION_NOTE, file=sys.stderr)
    if args.output == "json":
        print(json.dumps(result.document, indent=2))
    else:
        print(as_text(result, screen_width()))
    return 0


def _has_relocated(document: dict[str, Any]) -> bool:
    return any(
        it["action"] == "consolidation" for cycle in document["cycles"] for it in cycle["evictions"]
    )


def _options(args: argparse.Namespace, faults: list[FieldError]) -> "SimulationOptions":
    from trainer_kai.cli.commands.simulate.scheduler_config import action_faults  # noqa: PLC0415 - it imports numpy
    from trainer_kai.cli.commands.simulate.simulation import SimulationOptions  # noqa: PLC0415 - it imports numpy
    from trainer_kai.cli.input.kinds import unix_seconds  # noqa: PLC0415 - few need it

    if not 1 <= args.cycles <= _MAX_CYCLES:
        faults.append(FieldError("--cycles", f"{args.cycles} must be between 1 and {_MAX_CYCLES}"))
    now = unix_seconds(args.now) if args.now else None
    if args.now and now is None:
        expected = "must be a time such as '2026-01-31T12:00:00Z'"
        faults.append(FieldError("--now", f"{args.now!r} {expected}"))
    grace = _duration(args.staleness_grace_period, "--staleness-grace-period", faults)
    stuck = _nonnegative_duration(
        args.stuck_in_releasing_threshold, "--stuck-in-releasing-threshold", faults
    )
    max_grace = _nonnegative_duration(args.max_termination_grace, "--max-termination-grace", faults)
    names = [name.strip() for name in (args.actions or "").split(",")]
    if args.actions is not None and not all(names):
        faults.append(FieldError("--actions", f"{args.actions!r} has an empty name"))
    faults += action_faults(filter(None, names), "--actions")
    return SimulationOptions(
        actions=tuple(filter(None, names)),
        cycles=args.cycles,
        now=now,
        evicted_pods=args.evicted_pods,
        terminating_pods=args.terminating_pods,
        nominations=args.nominations,
        staleness_grace_s=grace,
        stuck_in_releasing_s=stuck,
        max_termination_grace_s=max_grace,
        stats=args.stats,
        scheduler_name=args.scheduler_name,
        default_queue=args.default_queue,
        victims=args.victims,
        disruption_budgets=args.disruption_budgets,
        placement=args.placement or "",
        relocate=args.relocate,
        kueue=args.kueue,
        kind_defaults=kind_defaults(args),
    )


def _nonnegative_duration(text: str, path: str, faults: list[FieldError]) -> int:
    seconds = _duration(text, path, faults)
    if seconds < 0:
        faults.append(FieldError(path, f"{text!r} must not be negative"))
    return seconds


def _duration(text: str, path: str, faults: list[FieldError]) -> int:
    """Return a duration in seconds, rounded down; add a fault for another text."""
    from trainer_kai.api.quantity import DurationError, nanoseconds  # noqa: PLC0415 - slow to import

    try:
        return nanoseconds(text) // _SECOND
    except DurationError as error:
        faults.append(FieldError(path, str(error)))
        return 0
