"""`trainer-kai doctor` on the real chain: a sound installation, and one that is broken by pieces.

Every test mends what it broke, so that the next one finds a sound installation again.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import pytest
import pytest_asyncio

from e2e.cluster.patience import patience
from e2e.cluster.resources import (
    JOBSETS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    Obj,
)
from e2e.conftest import failed
from e2e.doctor.broken_installations import BROKEN, WEBHOOK_CONFIGURATION, another_scheduler
from e2e.doctor.installation import DoctorInstallation, run_doctor_installation
from tests.support.certificates import make_certificates

_SPOILED_S: Final = 90.0
_UNTRUSTED: Final = "certificate signed by unknown authority"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def doctor_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DoctorInstallation]:
    """Return an installation that all tests here share."""
    async with run_doctor_installation("test-doctor", tmp_path_factory.mktemp("doctor")) as shared:
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


async def test_a_sound_installation(doctor_installation: DoctorInstallation) -> None:
    """Every line is ok, and the exit code is 0; nothing is left behind."""
    report = await doctor_installation.run_doctor()
    document = await doctor_installation.run_doctor("-o", "json")
    jobsets, _ = await doctor_installation.cluster.api.list(JOBSETS)

    assert (report.code, report.err) == (0, "")
    lines = report.out.splitlines()
    assert [it for it in lines[:-2] if not it.startswith(("ok   ", "     "))] == []
    assert re.fullmatch(r"\d+ checks: \d+ ok", lines[-1])
    assert document.code == 0
    assert json.loads(document.out)["counts"]["ok"] == len(json.loads(document.out)["findings"])
    assert jobsets == []


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_installation(doctor_installation: DoctorInstallation, name: str) -> None:
    """What is broken is named, and nothing else is; what hangs on it may be unknown."""
    broken, wanted = BROKEN[name]

    async with broken(doctor_installation):
        report = await doctor_installation.findings()

    found = {check: it for check, it in report.items() if it[0] != "unknown"}
    assert found.keys() == wanted.keys(), found
    for check, (state, sentence) in wanted.items():
        assert found[check][0] == state
        assert sentence in found[check][1]


async def test_a_wrong_authority_in_the_configuration(
    doctor_installation: DoctorInstallation,
) -> None:
    """The API server does not trust the webhook, and says so, until a new process puts it right."""
    wrong = make_certificates(("localhost",), datetime.now(UTC)).authority
    bundle = base64.b64encode(wrong).decode()
    api = doctor_installation.cluster.api

    async def spoil() -> None:
        found = await api.get(MUTATING_WEBHOOKS, None, WEBHOOK_CONFIGURATION)
        if any(hook["clientConfig"].get("caBundle") != bundle for hook in found["webhooks"]):
            for hook in found["webhooks"]:
                hook["clientConfig"]["caBundle"] = bundle
            await api.merge(
                MUTATING_WEBHOOKS, None, WEBHOOK_CONFIGURATION, {"webhooks": found["webhooks"]}
            )

    async def keep_spoiling() -> None:
        while True:  # the webhook puts it right meanwhile, until it has done so too often
            await spoil()
            await asyncio.sleep(0.02)

    await spoil()
    await doctor_installation.until_injected()  # who runs puts it right
    report: dict[str, tuple[str, str]] = {}
    async with patience(_SPOILED_S), asyncio.TaskGroup() as group:
        spoiling = group.create_task(keep_spoiling())
        # it may be right just when the doctor looks
        while (
            _UNTRUSTED not in report.get("CA bundle", ("", ""))[1]
            or "TrainJob dry run" not in report
        ):
            await doctor_installation.until_refused(_UNTRUSTED)
            report = await doctor_installation.findings()
        spoiling.cancel()
    await doctor_installation.webhook.stop()  # who gave up for an hour begins anew
    await doctor_installation.webhook.start()
    await doctor_installation.until_injected()

    assert report["CA bundle"][0] == "fault"
    assert "does not trust the webhook" in report["CA bundle"][1]
    assert _UNTRUSTED in report["CA bundle"][1]
    assert report["TrainJob dry run"][0] == "fault"
    assert await doctor_installation.findings() == {}


async def test_a_user_without_permissions_is_told_which_are_missing(
    doctor_installation: DoctorInstallation,
) -> None:
    """What he may not is named; nothing is at fault, and nobody can say whether it works."""
    metadata = {"namespace": "default", "name": "visitor"}
    await doctor_installation.cluster.api.create(
        {"apiVersion": "v1", "kind": SERVICE_ACCOUNTS.kind, "metadata": metadata}
    )
    kubeconfig = await doctor_installation.cluster.service_account_kubeconfig("default", "visitor")

    report = await doctor_installation.run_doctor(kubeconfig=kubeconfig)

    assert (report.code, report.err) == (2, "")
    assert "you may not list nodes" in report.out
    assert re.search(r"\d+ checks: \d+ unknown, 1 ok", report.out)


async def test_a_namespace_that_stays_out_is_no_fault(
    doctor_installation: DoctorInstallation,
) -> None:
    """It is tried where TrainJobs are ours."""
    api = doctor_installation.cluster.api
    await api.merge(NAMESPACES, None, "default", _inject("disabled"))
    found = await doctor_installation.findings()
    await api.merge(NAMESPACES, None, "default", _inject(None))

    assert found == {}


async def test_a_namespace_that_is_not_there_is_no_place_to_try(
    doctor_installation: DoctorInstallation,
) -> None:
    """Whoever misspells it is told what there is; one that is going is passed over."""
    api = doctor_installation.cluster.api
    going = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "aa-going"}}
    await api.create({**going, "spec": {"finalizers": ["kubernetes"]}})
    await api.merge(NAMESPACES, None, "aa-going", {"metadata": {"finalizers": ["e2e.test/stays"]}})
    await api.delete(NAMESPACES, None, "aa-going")
    await api.merge(NAMESPACES, None, "default", _inject("disabled"))
    found = await doctor_installation.findings()
    await api.merge(NAMESPACES, None, "default", _inject(None))
    misspelt = await doctor_installation.run_doctor("--try-in", "defualt")
    too_late = await doctor_installation.run_doctor("--try-in", "aa-going")
    await api.merge(NAMESPACES, None, "aa-going", {"metadata": {"finalizers": None}})

    assert found == {}
    assert (misspelt.code, misspelt.out) == (2, "")
    assert (
        "--try-in: namespace defualt does not exist; existing are aa-going, default" in misspelt.err
    )
    assert (too_late.code, too_late.out) == (2, "")
    assert "namespace aa-going is being deleted" in too_late.err


async def test_another_kai_that_lives(doctor_installation: DoctorInstallation) -> None:
    """Two schedulers of one name; ours lets go as soon as it sees the other."""
    async with another_scheduler(doctor_installation):
        found = await doctor_installation.findings()

    state, output = found.pop("another scheduler")
    assert state == "fault"
    lease = "trainer-kai/kai-scheduler-default"
    assert output.startswith(f"another scheduler holds Lease {lease} (holder kai-0)")
    assert found.keys() <= {"lease of scheduler"}


def _inject(value: str | None) -> Obj:
    return {"metadata": {"labels": {"trainer-kai.dev/inject": value}}}
