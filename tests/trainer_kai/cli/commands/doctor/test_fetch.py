"""What is read of a cluster, over a wire that refuses, fails or says nothing."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from tests.support.clock import VirtualClock
from tests.trainer_kai.cli.commands.doctor.installation import (
    NOW,
    deployment,
    healthy_installation,
    lease,
    webhook_configurations,
)
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import RESERVATION_APP
from trainer_kai.cli.commands.doctor.checks.all_checks import run_checks
from trainer_kai.cli.commands.doctor.facts import (
    CheckState,
    Installation,
    InstallationFacts,
    Unread,
    require,
)
from trainer_kai.cli.commands.doctor.fetch import fetch_facts
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver, RetryPolicy
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse, Unavailable
from trainer_kai.kube.rest.transport import unavailable

OPTIONS = Installation("trainer-kai", "kai-scheduler")
OURS = "/api/v1/namespaces/trainer-kai"
RESERVATIONS = f"/api/v1/namespaces/{RESERVATION_APP}"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
SECRET = f"{OURS}/secrets/trainer-kai-webhook-tls"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/trainer-kai/leases"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
NODES = "/api/v1/nodes"
CREATED = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"


class Wire:
    """Answers by path; what is not there is not found."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.served: dict[str, Any] = served(healthy_installation())
        self.served_later: dict[str, Any] = {}  # what is served after some seconds
        self.refusals: dict[str, int] = {}  # by the beginning of a path
        self.silent: set[str] = set()
        self.denied: set[str] = set()  # resources, and names, that no account may touch
        self.asked: list[str] = []

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Answer, refuse, or say nothing."""
        self.asked.append(request.target)
        if request.path in self.silent:
            await self.clock.sleep(timeout_s)
            raise unavailable(request, "no answer in time", was_sent=True)
        for path, status in self.refusals.items():
            if request.path.startswith(path):
                return ApiResponse(status, json.dumps({"message": "no"}).encode())
        if request.path == REVIEWS:
            return self._review(json.loads(request.body or b""))
        there = (
            self.served if self.clock.monotonic_s() < 2 else {**self.served, **self.served_later}
        )
        if request.path not in there:
            return ApiResponse(404, b"{}")
        return ApiResponse(200, msgspec.json.encode(there[request.path]))

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Serve no watch: the doctor has none."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close nothing."""

    def _review(self, review: Mapping[str, Any]) -> ApiResponse:
        spec = review["spec"]
        _, _, namespace, _ = spec["user"].split(":")
        assert namespace in ("trainer-kai", RESERVATION_APP)
        assert spec["groups"][1] == f"system:serviceaccounts:{namespace}"
        asked = spec["resourceAttributes"]
        allowed = not {asked["resource"], asked.get("name")} & self.denied
        return ApiResponse(201, json.dumps({"status": {"allowed": allowed}}).encode())


def served(facts: InstallationFacts) -> dict[str, Any]:
    """Return the objects of facts by their paths."""
    configurations = require(facts.configurations)
    mutating = [it for it in configurations if it["kind"].startswith("Mutating")]
    validating = [it for it in configurations if it["kind"].startswith("Validating")]
    every = require(facts.validating_policies)
    kept = {
        it: [one for one in every if one["kind"].endswith("Binding") == it] for it in (False, True)
    }
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    jobsets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    return {
        "/version": require(facts.version),
        **{f"{CRDS}/{name}": require(it) for name, it in facts.definitions.items()},
        **{f"{OURS}/serviceaccounts/{it}": {} for it in facts.accounts},
        f"{RESERVATIONS}/serviceaccounts/{RESERVATION_APP}": {},
        f"{RESERVATIONS}/pods": {"items": require(facts.reservation_pods)},
        "/apis/node.k8s.io/v1/runtimeclasses": listing(
            *(Meta(name=it) for it in require(facts.runtime_classes))
        ),
        "/apis/coordination.k8s.io/v1/leases": whole(require(facts.scheduler_leases)),
        f"{HOOKS}/mutatingwebhookconfigurations": {"items": mutating},
        f"{HOOKS}/validatingwebhookconfigurations": {"items": validating},
        f"{HOOKS}/validatingadmissionpolicies": {"items": kept[False]},
        f"{HOOKS}/validatingadmissionpolicybindings": {"items": kept[True]},
        SECRET: require(facts.secret),
        "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes": {"items": []},
        "/apis/trainer.kubeflow.org/v1alpha1/trainingruntimes": {"items": []},
        "/apis/trainer.kubeflow.org/v1alpha1/trainjobs": listing(),
        "/api/v1/namespaces": listing(*require(facts.namespaces)),
        "/apis/apps/v1/namespaces/trainer-kai/deployments": {"items": require(facts.deployments)},
        LEASES: whole(require(facts.leases)),
        "/apis/scheduling.run.ai/v2/queues": whole(require(facts.queues)),
        "/apis/scheduling.run.ai/v2alpha2/podgroups": listing(),
        "/apis/scheduling.k8s.io/v1/priorityclasses": listing(
            *(Meta(name=it) for it in require(facts.priority_classes))
        ),
        NODES: {"metadata": {}, "items": [node, {"metadata": {"name": "plain"}}]},
        jobsets: dated(require(facts.jobset).got),
        "/api/v1/namespaces/default/pods": PodDryRuns(facts),
    }


class PodDryRuns(dict[str, Any]):
    """Both dry runs of pods go to one path: what is answered holds for both."""

    def __init__(self, facts: InstallationFacts) -> None:
        got: Any = dated(require(facts.foreign_pod).got)
        super().__init__(got)


def dated(got: Any) -> dict[str, Any]:
    return {**got, "metadata": {**got["metadata"], "creationTimestamp": CREATED}}


def listing(*metas: Meta) -> dict[str, Any]:
    return {"metadata": {}, "items": [{"metadata": it} for it in metas]}


def whole(found: Any) -> dict[str, Any]:
    return {"metadata": {}, "items": list(found)}


@pytest.fixture
def wire() -> Wire:
    return Wire(VirtualClock(NOW))


async def fetched(
    wire: Wire, options: Installation = OPTIONS, passes_s: float = 60.0
) -> InstallationFacts:
    """Look, and let time pass meanwhile."""
    access = RestConfig("https://127.0.0.1:6443", StaticToken(""))
    patience = RetryPolicy(timeout_s=15.0, total_s=5.0)
    client = Client(access, wire, wire.clock, NoRequestObserver(), retry_policy=patience)
    task = asyncio.create_task(fetch_facts(client, options))
    await wire.clock.advance(0)
    while not task.done() and wire.clock.monotonic_s() < passes_s:
        await wire.clock.advance(0.5)
    return await task


def problems(facts: InstallationFacts) -> dict[str, str]:
    return {it.check: it.observed for it in run_checks(facts) if it.state is not CheckState.OK}


async def test_a_healthy_cluster_is_read_whole(wire: Wire) -> None:
    """Of the two pods only one can be served here, so the TrainJob's pod has no PodGroup."""
    assert problems(await fetched(wire)) == {
        "gang pod dry run": "in default: the pod gets no PodGroup",
        "invalid TrainJob dry run": "not tried: no ClusterTrainingRuntime is for this scheduler",
    }
    assert (
        "/api/v1/namespaces/default/pods?fieldManager=trainer-kai-doctor&dryRun=All" in wire.asked
    )


async def test_what_may_not_be_read_is_named_and_nothing_else_is_lost(wire: Wire) -> None:
    """One that cannot tell says what may not be done."""
    wire.refusals = {SECRET: 403, NODES: 403, REVIEWS: 403}

    found = problems(await fetched(wire))
    del found["invalid TrainJob dry run"]

    reviews = "you may not create subjectaccessreviews.authorization.k8s.io"
    assert found["nodes"] == "you may not list nodes"
    assert found["certificate"].startswith("you may not get secrets trainer-kai/")
    assert found["permissions of webhook"] == reviews
    assert found.keys() - {"gang pod dry run"} == {
        *("nodes", "CA bundle", "certificate"),
        *(f"permissions of {it}" for it in ("webhook", "podgrouper", "scheduler", "agent")),
    }


async def test_nothing_may_be_read_but_the_version(wire: Wire) -> None:
    """No crash, and the findings are unknown."""
    wire.refusals = {"/api/": 403, "/apis/": 403}

    findings = run_checks(await fetched(wire))

    assert {it.state for it in findings if it.check != "API server"} == {CheckState.UNKNOWN}


async def test_what_says_nothing_or_fails_holds_nobody_up(wire: Wire) -> None:
    """A request has a time limit, and all together have one; other findings are reported."""
    wire.silent = {SECRET}
    wire.refusals = {NODES: 500}

    found = problems(await fetched(wire))

    assert wire.clock.monotonic_s() < 40
    assert found["certificate"].startswith("GET /api/v1/namespaces/trainer-kai/secrets")
    assert found["nodes"].startswith("GET /api/v1/nodes: 500")
    assert found.keys() - {"invalid TrainJob dry run"} == {
        *("gang pod dry run", "CA bundle", "certificate", "nodes")
    }


async def test_without_an_api_server_nobody_can_say(wire: Wire) -> None:
    """The user must name another server."""
    wire.silent = {"/version"}

    with pytest.raises(Unavailable):
        await fetched(wire)


async def test_what_an_account_may_not_is_read(wire: Wire) -> None:
    """By the API server's own judgement."""
    wire.denied = {"queues"}

    found = problems(await fetched(wire))

    assert found["permissions of scheduler"].endswith(
        "may not list queues.scheduling.run.ai, patch queues/status.scheduling.run.ai, "
        "watch queues.scheduling.run.ai"
    )


async def test_a_shard_that_the_role_does_not_name_is_reported(wire: Wire) -> None:
    """The scheduler counts what it may not read as absent, so both would bind."""
    configured_deployment = deployment("trainer-kai-scheduler", TRAINER_KAI_KAI_SHARDS="default,a")
    wire.served["/apis/apps/v1/namespaces/trainer-kai/deployments"] = {
        "items": [configured_deployment]
    }
    wire.denied = {"kai-scheduler-a"}

    facts = await fetched(wire)
    (found,) = (it for it in run_checks(facts) if it.check == "permissions of scheduler")

    assert found.observed == (
        "trainer-kai/trainer-kai-scheduler may not get leases.coordination.k8s.io kai-scheduler-a,"
        " get deployments.apps kai-scheduler-a"
    )
    assert found.remedy.endswith(
        "; before that, add the names in kai.shards to resourceNames in scheduler.yaml: "
        "kai-scheduler-a"
    )


async def test_it_is_tried_where_we_are_asked(wire: Wire) -> None:
    """The namespace of the context if it takes part, else another, else the one that is named."""

    def only(name: str) -> Any:
        def opted(found: Any) -> None:
            for hook in (it for configuration in found for it in configuration["webhooks"]):
                hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": name}}

        return opted

    async def tried(options: Installation = OPTIONS) -> set[str]:
        await fetched(wire, options)
        paths = {it.partition("?")[0] for it in wire.asked if "dryRun" in it and "jobsets" in it}
        wire.asked.clear()
        return {it.split("/")[5] for it in paths}

    def set_up(name: str) -> None:
        changed = healthy_installation()._replace(
            configurations=webhook_configurations(change=only(name))
        )
        wire.served |= {path: it for path, it in served(changed).items() if HOOKS in path}

    assert await tried() == {"default"}
    set_up("trainer-kai")
    assert await tried() == {"trainer-kai"}
    set_up("nowhere")
    assert await tried() == set()
    assert await tried(OPTIONS._replace(try_in="there")) == {"there"}


async def test_the_secret_is_the_one_of_the_webhook_setting(wire: Wire) -> None:
    """Whatever was left in another."""
    configured_deployment = deployment("trainer-kai-webhook", TRAINER_KAI_TLS_SECRET_NAME="mine")
    wire.served["/apis/apps/v1/namespaces/trainer-kai/deployments"] = {
        "items": [configured_deployment]
    }

    facts = await fetched(wire)

    assert require(facts.secret) is None
    assert f"{OURS}/secrets/mine" in wire.asked
    assert SECRET not in wire.asked


async def test_other_schedulers_are_looked_for_where_ours_does(wire: Wire) -> None:
    """In the namespaces and by the shards of its settings; a tenant's Lease is not read."""
    configured_deployment = deployment(
        "trainer-kai-scheduler", TRAINER_KAI_KAI_NAMESPACES="gpu-system"
    )
    wire.served["/apis/apps/v1/namespaces/trainer-kai/deployments"] = {
        "items": [configured_deployment]
    }
    there = {"metadata": {"namespace": "gpu-system", "name": "x"}, "status": {"readyReplicas": 1}}
    path = "/apis/apps/v1/namespaces/gpu-system/deployments/kai-scheduler-default"
    wire.served[path] = there
    foreign_lease = "/apis/coordination.k8s.io/v1/namespaces/tenant/leases/kai-scheduler"
    wire.served[foreign_lease] = lease("kai-scheduler", namespace="tenant")

    found = problems(await fetched(wire))

    assert found["another scheduler"].startswith("another scheduler is ready as Deployment")
    asked = [it for it in wire.asked if "/leases/kai-scheduler" in it or it == path]
    assert {it.split("/")[5] for it in asked} == {"trainer-kai", "gpu-system"}


async def test_a_lease_that_looks_stale_is_read_again(wire: Wire) -> None:
    """If it was renewed meanwhile, it is a clock that is behind."""
    stale = [lease(f"trainer-kai-{it}", ago_s=100) for it in ("podgrouper", "scheduler")]
    wire.served[LEASES] = whole(stale)
    wire.served_later[LEASES] = whole([stale[0], lease("trainer-kai-scheduler", ago_s=96)])

    facts = await fetched(wire)

    assert facts.renewed == {"trainer-kai/trainer-kai-scheduler"}
    found = problems(facts)
    assert found["lease of podgrouper"].endswith("for 104 s")
    assert found["clocks"] == "the clock of one is 100 s behind the API server's"


async def test_another_scheduler_that_claims_long_is_read_again(wire: Wire) -> None:
    """Its claim does not make it alive after a minute; that it renews does."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kai-scheduler/leases/kai-scheduler"

    def held(ago_s: float) -> Any:
        return lease("kai-scheduler", "kai-0", ago_s, namespace="kai-scheduler", duration_s=3600)

    wire.served[path] = held(600)
    assert "another scheduler" not in problems(await fetched(wire))

    renewing = Late(wire)
    renewing.served_later[path] = held(598)
    assert "another scheduler" in problems(await fetched(renewing))


async def test_a_clock_that_is_off_is_seen_by_what_the_api_server_dates(wire: Wire) -> None:
    """It dates objects by whole seconds, so one second is no difference."""
    assert require((await fetched(wire)).skew_s) == 0.0
    for path in [it for it in wire.served if "/namespaces/default/" in it]:
        wire.served[path]["metadata"]["creationTimestamp"] = "2026-05-01T12:00:30Z"

    assert 29.0 < require((await fetched(Late(wire))).skew_s) <= 31.0


class Late(Wire):
    """The same cluster, asked anew."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(VirtualClock(NOW))
        self.served = wire.served


async def test_a_wrong_trainjob_is_tried_with_a_runtime_that_is_there(wire: Wire) -> None:
    """Else Trainer refuses it before we are asked."""
    path = "/apis/trainer.kubeflow.org/v1alpha1"
    wire.served[f"{path}/clustertrainingruntimes"] = listing(Meta(name="torch"))
    wire.served[f"{path}/namespaces/default/trainjobs"] = dated(
        require(healthy_installation().foreign_pod).got
    )

    sent = require((await fetched(wire)).trainjob).sent

    assert sent["spec"]["runtimeRef"]["name"] == "torch"
    assert sent["metadata"]["labels"] == {"kai.scheduler/queue": "No_Queue"}


def scheduled(name: str) -> dict[str, Any]:
    pods = {"spec": {"schedulerName": name} if name else {}}
    return {"name": "node", "template": {"spec": {"template": pods}}}


@pytest.mark.parametrize(
    "spec",
    [
        {"template": {"spec": {"replicatedJobs": [scheduled("volcano"), scheduled("")]}}},
        {"podGroupPolicy": {"coscheduling": {}}},
    ],
    ids=["its pods name another", "another makes its groups"],
)
async def test_no_runtime_of_another_scheduler_is_tried(wire: Wire, spec: dict[str, Any]) -> None:
    """TrainJobs of that are left to it, and not refused; the next one is ours."""
    path = "/apis/trainer.kubeflow.org/v1alpha1"
    other = {"metadata": {"name": "another"}, "spec": spec}
    ours = {"metadata": {"name": "torch"}, "spec": {"podGroupPolicy": {"kaiScheduler": {}}}}
    wire.served[f"{path}/clustertrainingruntimes"] = {"items": [other, ours]}
    wire.served[f"{path}/namespaces/default/trainjobs"] = dated(
        require(healthy_installation().foreign_pod).got
    )
    sent = require((await fetched(wire)).trainjob).sent
    assert sent["spec"]["runtimeRef"]["name"] == "torch"

    wire.served[f"{path}/clustertrainingruntimes"] = {"items": [other]}
    unread = (await fetched(wire)).trainjob
    assert unread == Unread("not tried: no ClusterTrainingRuntime is for this scheduler")


async def test_runtimes_that_had_the_queue_as_a_field_are_found(wire: Wire) -> None:
    """The managedFields keep the field, though the definition has lost it."""
    fields: Any = {"f:spec": {"f:podGroupPolicy": {"f:kaiScheduler": {"f:queue": {}}}}}
    having = {"metadata": {"name": "torch", "managedFields": [{"fieldsV1": fields}]}}
    others = {"metadata": {"name": "plain", "managedFields": []}}
    path = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
    wire.served[path] = {"items": [having, others]}

    assert require((await fetched(wire)).runtimes_with_queue_field) == ["torch"]


@pytest.mark.parametrize("body", [None, 7, [], {"items": 7}, {"items": [None]}], ids=str)
async def test_who_is_no_api_server_is_known_for_nothing(wire: Wire, body: Any) -> None:
    """It says its version, and to all else something: a page to log in, say."""
    wire.served |= dict.fromkeys(wire.served.keys() - {"/version"}, body)

    facts = await fetched(wire)

    read: list[object] = [facts.configurations, facts.deployments, facts.queues]
    if not isinstance(body, dict):
        read.append(facts.jobset)
    assert {type(it) for it in read} == {Unread}
    assert not [it for it in read if "the response cannot be decoded" not in str(it)]
    assert CheckState.UNKNOWN in {it.state for it in run_checks(facts)}
