"""`trainer-kai doctor`: whether an installation works, and how to fix what does not.

It reads with the permissions of the user, and creates objects only as dry runs: nothing is stored.
"""

import argparse
import json
from typing import TYPE_CHECKING, Final

from trainer_kai.cli.options import add_cluster_flags, add_output_flag, add_scheduler_flag
from trainer_kai.cli.output.table import screen_width
from trainer_kai.errors import ConfigError, FieldError

if TYPE_CHECKING:
    from trainer_kai.cli.commands.doctor.facts import InstallationFacts

_NAMESPACE: Final = "trainer-kai"
_TIMEOUT_S: Final = 15.0  # three webhooks of other products may take 5 s each


def add_doctor(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "doctor",
        help="check the installation, and show how to fix problems",
        description="Check the installation by reads and dry runs, with your own permissions.",
        epilog="Exit code: 0 if TrainJobs are admitted and no check fails; 1 if a check fails; "
        "2 if it cannot be determined whether TrainJobs are admitted.",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        default=_NAMESPACE,
        help=f"the namespace of the installation (default: {_NAMESPACE})",
    )
    parser.add_argument(
        "--try-in",
        default="",
        metavar="NAMESPACE",
        help="the namespace of the dry runs (default: that of the context)",
    )
    parser.add_argument(
        "--as-user",
        action="store_true",
        help="only what concerns a user of queues: leave out the checks that only an administrator"
        " may run",
    )
    add_output_flag(parser, "text")
    add_scheduler_flag(parser)
    add_cluster_flags(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - not every command needs a cluster, and it is slow to import

    from trainer_kai.cli.commands.doctor.checks.all_checks import run_checks  # noqa: PLC0415 - as above
    from trainer_kai.cli.commands.doctor.checks.dry_runs import (  # noqa: PLC0415 - as above
        TRAINJOB_CHECK,
        deciding_check,
    )
    from trainer_kai.cli.commands.doctor.dry_run_objects import namespace_fault  # noqa: PLC0415 - as above
    from trainer_kai.cli.commands.doctor.text_output import (  # noqa: PLC0415 - as above
        as_json,
        as_text,
        exit_code,
        for_user,
    )

    facts = asyncio.run(_read_facts(args))
    namespace_problem = args.try_in and namespace_fault(facts, args.try_in)
    if namespace_problem:
        raise ConfigError([FieldError("--try-in", namespace_problem)])
    findings, deciding = run_checks(facts), TRAINJOB_CHECK
    if args.as_user:
        deciding = deciding_check(facts)
        findings = for_user(findings, deciding)
    if args.output == "json":
        print(json.dumps(as_json(findings), indent=2))
    else:
        print(as_text(findings, screen_width()))
    return exit_code(findings, deciding)


async def _read_facts(args: argparse.Namespace) -> "InstallationFacts":
    import dataclasses  # noqa: PLC0415 - as above
    import os  # noqa: PLC0415 - as above

    from trainer_kai.cli.commands.doctor.facts import Installation  # noqa: PLC0415 - as above
    from trainer_kai.cli.commands.doctor.fetch import fetch_facts  # noqa: PLC0415 - as above
    from trainer_kai.kube.auth.kubeconfig import find_rest_config  # noqa: PLC0415 - as above
    from trainer_kai.kube.client import RetryPolicy, process_client  # noqa: PLC0415 - as above
    from trainer_kai.service.clock import SystemClock  # noqa: PLC0415 - as above

    clock = SystemClock()
    access = await find_rest_config(
        os.environ, clock, kubeconfig=args.kubeconfig, context=args.context
    )
    access = dataclasses.replace(access, impersonated=args.user_as)
    async with process_client(access, clock) as client:
        patient_client = client.with_retry_policy(
            RetryPolicy(timeout_s=min(_TIMEOUT_S, args.request_timeout), total_s=5.0)
        )
        installation = Installation(args.namespace, args.scheduler_name, try_in=args.try_in)
        return await fetch_facts(patient_client, installation)
