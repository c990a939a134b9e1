"""Each import contract catches what it is for, and lets through what it must.

A table adds imports to the graph of this repository by the contract that must break then, and no
other. The modules it adds need not exist: the contracts hold for whatever is written next.
"""

import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path

import pytest

from tests.architecture.import_contracts import (
    Linter,
    PlantedImports,
    copy_packages,
    exempted_imports,
    import_chain,
    lint,
    plant_files,
    read_contracts,
)
from tests.support.repository import ROOT

CONTRACTS = read_contracts(ROOT / "pyproject.toml")

# contract -> claim -> what breaks this contract, and only this one
REFUSED: Mapping[str, Mapping[str, PlantedImports]] = {
    "scheduler-layers": {
        "the core imports the state": ("scheduler/core/nodes/new.py: from scheduler import state",),
        "a policy imports the shell": ("scheduler/policies/new.py: import scheduler.shell",),
        "the core reaches the state through a policy": (
            "scheduler/core/nodes/new.py: from scheduler.policies import new",
            "scheduler/policies/new.py: from scheduler import state",
        ),
        "a room has no place among the layers": ("scheduler/attic/__init__.py:",),
    },
    "library-layers": {
        "an object knows a rule": ("trainer_kai/api/new.py: from trainer_kai import policy",),
        "the client knows a rule": ("trainer_kai/kube/new.py: from trainer_kai import policy",),
        "the client knows a process": ("trainer_kai/kube/new.py: import trainer_kai.podgrouper",),
        "an error knows an object": ("trainer_kai/errors.py: from trainer_kai import api",),
        "a module has no place among the layers": ("trainer_kai/attic.py:",),
    },
    "service-layers": {
        "the clock reads the settings": (
            "trainer_kai/service/clock.py: from trainer_kai.service import settings",
        ),
        "a service has no place among the layers": ("trainer_kai/service/attic.py:",),
    },
    "core-layers": {
        "a predicate knows a victim": (
            "scheduler/core/nodes/new.py: from scheduler.core import eviction",
        ),
        "the model knows a queue's order": (
            "scheduler/core/model/new.py: from scheduler.core import queues",
        ),
        "a queue knows a gang": ("scheduler/core/queues/new.py: from scheduler.core import gang",),
        "a session knows an action": ("scheduler/core/session.py: import scheduler.core.actions",),
        "a victim knows the session": (
            "scheduler/core/eviction/new.py: from scheduler.core import session",
        ),
        "a folder has no place among the layers": ("scheduler/core/attic/__init__.py:",),
    },
    "state-layers": {
        "a pod knows its PodGroup": (
            "scheduler/state/pods/new.py: from scheduler.state import podgroups",
        ),
        "the snapshot knows the cache": (
            "scheduler/state/snapshot/new.py: from scheduler.state import cache",
        ),
        "a folder has no place among the layers": ("scheduler/state/attic/__init__.py:",),
    },
    "webhook-layers": {
        "the cache knows a rule": ("webhook/cache/new.py: from webhook import rules",),
        "a patch knows a rule": ("webhook/admission/new.py: from webhook import rules",),
    },
    "cli-on-top": {
        "the webhook imports it": ("webhook/server.py: from trainer_kai import cli",),
        "the scheduler imports a part of it": (
            "scheduler/shell/new.py: from trainer_kai.cli import new",
            "trainer_kai/cli/new.py:",
        ),
    },
    "processes-never-meet": {
        "the webhook imports the scheduler": ("webhook/server.py: from scheduler import core",),
        "the scheduler imports the webhook": ("scheduler/shell/new.py: import webhook",),
        "the scheduler groups": ("scheduler/shell/new.py: import trainer_kai.podgrouper",),
    },
    "agent-imports-no-scheduler": {
        "the agent knows the shell": ("scheduler/agent/new.py: from scheduler import shell",),
        "the agent reaches the state through its front door": (
            "scheduler/agent/new.py: import scheduler.agent",
            "scheduler/agent/__init__.py: import scheduler.state",
        ),
    },
    "gpu-shares-behind-devices": {
        "a victim knows them": (
            "scheduler/core/eviction/new.py: from scheduler.core.nodes.device_sorts import new",
            "scheduler/core/nodes/device_sorts/new.py:",
        ),
    },
    "agent-is-imported-by-tests-only": {
        "a benchmark imports it": ("benchmarks/new.py: import scheduler.agent",),
        "the command line imports a part of it": (
            "trainer_kai/cli/new.py: from scheduler.agent import new",
            "scheduler/agent/new.py:",
        ),
    },
    "one-reader-of-devices": {
        f"{module} reads devices": (f"{module}: import pynvml",)
        for module in ("scheduler/shell/new.py", "scheduler/agent/new.py", "tests/new.py")
    },
    "library-below-processes": {
        "the client imports the scheduler": ("trainer_kai/kube/new.py: import scheduler.core",),
        "a rule imports the webhook": (
            "trainer_kai/policy/new.py: import webhook.admission.review",
            "webhook/admission/review.py:",
        ),
    },
    "core-knows-no-kubernetes": {
        "the core knows an object": ("scheduler/core/nodes/new.py: from trainer_kai import api",),
        "a policy validates objects": ("scheduler/policies/new.py: import pydantic",),
        "a policy writes a message": (
            "scheduler/policies/new.py: from trainer_kai.api import text",
        ),
        "the core decodes objects": ("scheduler/core/nodes/new.py: import msgspec",),
        "the core patches objects": ("scheduler/core/nodes/new.py: import jsonpatch",),
        "a policy knows our errors through the core": (
            "scheduler/policies/new.py: from scheduler.core.nodes import new",
            "scheduler/core/nodes/new.py: from trainer_kai import errors",
            "trainer_kai/errors.py:",
        ),
    },
    "state-does-no-io": {
        "the state uses the client": (
            "scheduler/state/nodes/new.py: from trainer_kai import kube",
        ),
        **{
            f"the state uses the {name}": (
                f"scheduler/state/nodes/new.py: from trainer_kai.service import {name}",
                f"trainer_kai/service/{name}.py:",
            )
            for name in ("clock", "config", "health", "log", "metrics", "settings")
        },
    },
    "pure-imports-values-only": {
        "the core measures time": ("scheduler/core/nodes/new.py: import time",),
        "a policy logs": ("scheduler/policies/new.py: import logging",),
        "the state waits": ("scheduler/state/nodes/new.py: import asyncio",),
        "an object mints ids": ("trainer_kai/api/new.py: import uuid",),
        "a rule looks around in a function": ("trainer_kai/policy/new.py: def f(): import os",),
        "an error opens a socket": ("trainer_kai/errors.py: import socket",),
        "a front door reads a file": ("trainer_kai/__init__.py: import pathlib",),
        "a front door starts a thread": ("webhook/__init__.py: import threading",),
        "a front door takes the time": ("scheduler/__init__.py: import time",),
        "a rule uses an unlisted library": ("trainer_kai/policy/new.py: import unheard.of",),
        "a new module of the webhook waits": ("webhook/rules/new.py: import asyncio",),
        "a new folder of the webhook waits": (
            "webhook/rules/new/__init__.py:",
            "webhook/rules/new/deep.py: import asyncio",
        ),
        "a new module of the podgrouper waits": ("trainer_kai/podgrouper/new.py: import asyncio",),
        "a shell module's name is worth nothing elsewhere": (
            "trainer_kai/policy/reconcile.py: import asyncio",
        ),
    },
    "pure-imports-no-shell": {
        "the review imports the server": (
            "webhook/rules/new.py: from webhook import server",
            "webhook/server.py: import aiohttp",
        ),
        "the review reaches rotation through a pure module": (
            "webhook/admission/review.py: from webhook.admission import new",
            "webhook/admission/new.py: from webhook.tls import self_managed",
            "webhook/tls/self_managed.py: import asyncio",
        ),
        "the library's front door is the client": (
            "trainer_kai/__init__.py: from trainer_kai import kube",
        ),
        "the webhook's front door is its shell": (
            "webhook/__init__.py: from webhook.tls import make",
            "webhook/tls/make.py: import secrets",
        ),
        "planning imports the reconciler": (
            "trainer_kai/podgrouper/plan.py: from trainer_kai.podgrouper import reconcile",
            "trainer_kai/podgrouper/reconcile.py: import asyncio",
        ),
        "planning imports the wiring": (
            "trainer_kai/podgrouper/plan.py: from trainer_kai.podgrouper import __main__",
            "trainer_kai/podgrouper/__main__.py:",
        ),
        "planning uses the client": (
            "trainer_kai/podgrouper/plan.py: from trainer_kai import kube",
        ),
        "a rule uses the log": (
            "trainer_kai/policy/new.py: from trainer_kai.service import log",
            "trainer_kai/service/log.py:",
        ),
        "a check reads the settings": (
            "webhook/rules/new.py: import trainer_kai.service.config",
            "trainer_kai/service/config.py:",
        ),
    },
    "http-in-three-places": {
        "the scheduler speaks it": ("scheduler/shell/new.py: import aiohttp",),
        "the podgrouper speaks it": ("trainer_kai/podgrouper/reconcile.py: import aiohttp",),
        "a shell module that is no server speaks it": (
            "webhook/tls/self_managed.py: import aiohttp.web",
        ),
    },
    "one-kubernetes-client": {
        f"{module} has a second": (f"{module}: from kubernetes import client",)
        for module in (
            "scheduler/shell/new.py",
            "trainer_kai/podgrouper/reconcile.py",
            "webhook/server.py",
            "e2e/new.py",
            "benchmarks/new.py",
            "tests/new.py",
        )
    },
    "product-imports-no-tests": {
        "the client imports what tests share": ("trainer_kai/kube/new.py: import tests.support",),
        "the scheduler imports a scenario": (
            "scheduler/shell/new.py: from e2e import new",
            "e2e/new.py: import aiohttp",
        ),
        "the webhook imports a test": ("webhook/server.py: import tests.architecture",),
        "the command line imports a benchmark": ("trainer_kai/cli/new.py: import benchmarks",),
    },
    "witness-imports-no-product": {
        "it watches with our client": ("e2e/cluster/new.py: from trainer_kai import kube",),
        "it asks the scheduler": ("e2e/cluster/new.py: import scheduler.core",),
        "it asks the webhook": ("e2e/cluster/new.py: import webhook",),
        "it knows our names through a scenario": (
            "e2e/cluster/new.py: from e2e import new",
            "e2e/new.py: from trainer_kai import api",
        ),
    },
}

ALLOWED: Mapping[str, PlantedImports] = {
    "the webhook's shell waits and serves, its review decides": (
        "webhook/__main__.py: import os; from webhook import server",
        "webhook/__main__.py: from trainer_kai.service import config",
        "webhook/server.py: import asyncio, aiohttp.web; from webhook import reviews, rules",
        "webhook/tls/self_managed.py: import ssl; from trainer_kai import kube",
        "webhook/tls/self_managed.py: from webhook.tls import make",
        "webhook/tls/make.py: import secrets, cryptography.x509",
        (
            "webhook/admission/review.py: import json, jsonpatch; from trainer_kai "
            "import api, errors, policy"
        ),
        "trainer_kai/service/config.py: import os; from trainer_kai import errors",
        "trainer_kai/errors.py: import enum",
    ),
    "the podgrouper's shell waits, its plan decides": (
        "trainer_kai/podgrouper/__main__.py: from trainer_kai.podgrouper import reconcile",
        "trainer_kai/podgrouper/reconcile.py: import asyncio",
        "trainer_kai/podgrouper/reconcile.py: from trainer_kai import kube, service",
        "trainer_kai/podgrouper/reconcile.py: from trainer_kai.podgrouper import plan",
        "trainer_kai/podgrouper/plan.py: import graphlib; from trainer_kai import api, policy",
        "trainer_kai/service/clock.py: import time",
    ),
    "the client speaks HTTP and the library's services do what they are for": (
        "trainer_kai/kube/__init__.py: import aiohttp, kubernetes",
        "trainer_kai/kube/new.py: import asyncio, aiohttp, kubernetes",
        "trainer_kai/kube/new.py: from trainer_kai.service import log",
        "trainer_kai/service/health.py: import aiohttp; from trainer_kai.service import metrics",
        "trainer_kai/service/log.py: import logging",
        "trainer_kai/service/metrics.py: import threading",
    ),
    "the scheduler's rooms import downwards, and its shell uses the client": (
        "scheduler/__main__.py: import os; from scheduler import shell",
        "scheduler/shell/__init__.py: import asyncio; from trainer_kai.kube import new",
        "scheduler/shell/new.py: import time; from scheduler.state.nodes import new",
        "scheduler/state/nodes/new.py: from scheduler.policies import new",
        "scheduler/state/nodes/new.py: from trainer_kai import api",
        "scheduler/policies/new.py: from scheduler.core.nodes import new; import numpy as np",
        "scheduler/core/nodes/new.py: from dataclasses import dataclass; import numpy as np",
        "scheduler/core/nodes/new.py: from trainer_kai.api import reasons",
        "trainer_kai/kube/new.py: import aiohttp, kubernetes",
    ),
    "the agent reads devices and uses the client": (
        "scheduler/agent/__main__.py: import asyncio, os, signal; from scheduler.agent import new",
        "scheduler/agent/device.py: import pynvml",
        "scheduler/agent/new.py: import random; from trainer_kai import api, kube, service",
        "tests/new.py: from scheduler.agent import new",
    ),
    "pure code imports values and its own front door": (
        "scheduler/core/nodes/new.py: import collections.abc, enum, heapq, math, typing, scheduler",
        "trainer_kai/api/new.py: import datetime, decimal, re, msgspec, pydantic, trainer_kai",
        "webhook/admission/review.py: import base64, json, jsonpatch, webhook",
    ),
    "the command line shows every room, and tests see everything": (
        "trainer_kai/cli/__init__.py: import sys, webhook.server, scheduler.shell",
        "trainer_kai/cli/new.py: import os, trainer_kai.podgrouper, webhook.server, scheduler.core",
        "webhook/server.py: import aiohttp",
        "tests/new.py: import aiohttp; from trainer_kai import cli",
        "e2e/new.py: import aiohttp; from trainer_kai import cli; from e2e import cluster",
        "benchmarks/new.py: from trainer_kai import cli; from scheduler import core",
    ),
}

EXEMPTIONS = """
    aiohttp asyncio builtins concurrent ctypes cryptography fcntl glob http importlib io kubernetes
    logging multiprocessing os pathlib pickle platform prometheus_client queue random requests rich
    sched secrets select selectors shelve shutil signal socket sqlite3 ssl structlog subprocess sys
    tempfile threading time urllib uuid warnings weakref yaml zoneinfo
""".split()  # noqa: SIM905 - a name a line would be a page of them


@pytest.fixture(scope="module")
def linter() -> Linter:
    """Build the graph of this repository once."""
    return Linter(ROOT)


def test_every_contract_has_a_plant_of_its_own() -> None:
    """A contract that nothing is seen to break may well be one that nothing can break."""
    assert REFUSED.keys() == CONTRACTS.by_id.keys()
    assert [contract for contract, rows in REFUSED.items() if not rows] == []


def test_the_shell_is_the_same_list_wherever_it_is_named() -> None:
    """A module let off in one contract but not kept out by the other would be a hole in both."""
    values = CONTRACTS.by_id["pure-imports-values-only"]
    no_shell = CONTRACTS.by_id["pure-imports-no-shell"]
    shell = exempted_imports(no_shell)
    kept_out = no_shell["forbidden_modules"]

    assert {name for name in exempted_imports(values) if not name.startswith("scheduler.")} == shell
    assert {name for name in shell if not any(fnmatch(name, star) for star in kept_out)} == set()
    assert {star for star in kept_out if not any(fnmatch(name, star) for name in shell)} == set()


def test_of_foreign_libraries_the_core_gets_numpy_alone() -> None:
    """What is let through for all modules must be kept out of the core by name."""
    overlooked = CONTRACTS.by_id["pure-imports-values-only"]["ignore_imports"]
    let_through = {imported for star, imported in map(import_chain, overlooked) if star == "**"}
    foreign = let_through - sys.stdlib_module_names - set(CONTRACTS.roots)

    kept_out = set(CONTRACTS.by_id["core-knows-no-kubernetes"]["forbidden_modules"])
    assert foreign - {"numpy"} == kept_out - {"trainer_kai"}


@pytest.mark.parametrize("contract", REFUSED)
def test_planted_imports_break_their_contract_and_no_other(contract: str, linter: Linter) -> None:
    """Each row does. Together they break nothing else, so no row does so alone."""
    rows = REFUSED[contract]

    assert [claim for claim, it in rows.items() if not linter.breaks(contract, it)] == []
    assert linter.check(_together(rows)).broken == {contract}


def test_what_is_allowed_breaks_no_contract(linter: Linter) -> None:
    """Not all of it together, so no row alone; and the repository breaks none."""
    assert linter.check(_together(ALLOWED)).broken == frozenset()
    assert linter.check().broken == frozenset()


def _together(rows: Mapping[str, PlantedImports]) -> list[str]:
    return [plant for plants in rows.values() for plant in plants]


def test_two_contracts_can_break_at_once(linter: Linter) -> None:
    """What meets only through the library is caught at both ends."""
    plants = (
        "webhook/server.py: from trainer_kai.service import health",
        "trainer_kai/service/health.py: from scheduler import core",
    )

    assert linter.check(plants).broken == {"processes-never-meet", "library-below-processes"}


@pytest.mark.parametrize(
    "module", ["webhook/rules/new", "scheduler/core/nodes/new", "trainer_kai/api/new"]
)
def test_no_way_out_of_a_pure_module_is_left_open(module: str, linter: Linter) -> None:
    """Files, clocks, networks, processes, logs and chance are all out of reach, one by one."""
    found = linter.check([f"{module}.py: import {library}" for library in EXEMPTIONS]).forbidden

    assert found >= {(module.replace("/", "."), library) for library in EXEMPTIONS}


def test_an_impure_import_is_traced_through_a_pure_module(linter: Linter) -> None:
    """The module that only borrows impurity is named too, not just the one it borrows from."""
    plants = (
        "webhook/admission/review.py: from webhook.admission import new",
        "webhook/admission/new.py: import threading",
    )

    assert ("webhook.admission.review", "threading") in linter.check(plants).forbidden


def test_the_command_fails_when_contracts_are_broken(tmp_path: Path) -> None:
    """The linter reads planted files as the table above means them, and says which rules broke."""
    copy_packages(ROOT, CONTRACTS.roots, tmp_path)
    for rows in REFUSED.values():
        plant_files(tmp_path, next(iter(rows.values())))

    assert lint(tmp_path, CONTRACTS) == (frozenset(CONTRACTS.by_id), 1)
