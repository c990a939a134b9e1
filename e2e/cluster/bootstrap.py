"""Writes the run folder before the programs start, and the first objects once the API serves."""

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import Any, Final

from e2e.cluster import kwok_stages
from e2e.cluster.api import Api
from e2e.cluster.catalog import Catalog
from e2e.cluster.kubeconfig import Credentials, tokens_csv, write_kubeconfig
from e2e.cluster.programs import ClusterLayout
from e2e.cluster.resources import PVCS, SERVICE_ACCOUNTS, Obj, namespace

# The data cache runtime names this ServiceAccount; its overlay makes one in `default`.
CACHE_INITIALIZER: Final = "kubeflow-trainer-cache-initializer"
_CLAIM: Final = "persistentVolumeClaim"
_NAMESPACES: Final = ("kubeflow-system", "jobset-system")
_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # Of ServiceAccounts everything, a watch when it begins; no program of the chain is one.
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        {"level": "Metadata", "omitStages": ["ResponseStarted"]},
    ],
}


def write_files(layout: ClusterLayout, catalog: Catalog, credentials: Credentials) -> None:
    """Write every file the programs read."""
    tokens = layout.run / "tokens.csv"
    tokens.touch(mode=0o600)
    tokens.write_text(tokens_csv(credentials.tokens))
    for user in credentials.tokens:
        write_kubeconfig(layout.kubeconfig(user), credentials.kubeconfig(user))
    _write_json(layout, "audit-policy.json", _AUDIT_POLICY)
    _write_json(layout, "jobset.yaml", _jobset_config(layout))
    _write_json(layout, "trainer.yaml", _trainer_config(layout))
    documents = [json.dumps(stage) for stage in kwok_stages.all_stages(catalog.kwok)]
    (layout.run / "stages.yaml").write_text("\n---\n".join(documents))
    certificates = layout.run / "trainer-tmp" / "k8s-webhook-server" / "serving-certs"
    certificates.mkdir(parents=True)
    for file in layout.serving:
        (certificates / file.name).symlink_to(file)


async def crds_are_served(api: Api, catalog: Catalog) -> None:
    """Wait until the API serves the CRDs."""
    wanted = {(crd["spec"]["group"], crd["spec"]["names"]["plural"]) for crd in catalog.crds}
    # Programs look kinds up when they start, and Trainer gives up when its own are not there yet.
    while not wanted <= await api.discover():
        await asyncio.sleep(0.05)
    for crd in catalog.crds:
        spec = crd["spec"]
        version = spec["versions"][0]["name"]
        await api.until_found(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}")


async def bootstrap(
    api: Api, layout: ClusterLayout, catalog: Catalog, credentials: Credentials
) -> None:
    """Create everything else. The managers must answer already: their webhooks see all of it."""
    bundle = base64.b64encode(credentials.authority_pem).decode()
    await api.create_all(
        _with_urls(catalog.jobset_webhooks, layout.url("jobset-webhook", "https"), bundle)
    )
    await api.create_all(
        _with_urls(catalog.trainer_webhooks, layout.url("trainer-webhook", "https"), bundle)
    )
    await api.create_all(kwok_stages.storage_classes(catalog.kwok))
    # The controller manager's first visible deed, without which no pod can be created.
    await api.until_found(SERVICE_ACCOUNTS.path("default", "default"))
    await api.create_all([_service_account("default", CACHE_INITIALIZER)])
    await api.create_all(_claims(catalog.runtimes))
    await api.create_all(catalog.runtimes)


def namespaces() -> Iterable[Obj]:
    """Return the namespaces the managers think they live in."""
    return [namespace(name) for name in _NAMESPACES]


def _with_urls(configurations: list[Obj], url: str, bundle: str) -> list[Obj]:
    """Return the webhooks called by address, for there is no Service network here."""
    names = {
        "MutatingWebhookConfiguration": "mutating",
        "ValidatingWebhookConfiguration": "validating",
    }
    changed = []
    for configuration in configurations:
        copied = json.loads(json.dumps(configuration))
        if copied["metadata"]["name"].endswith(
            "-webhook-configuration"
        ):  # JobSet's lack their prefix
            copied["metadata"]["name"] = f"jobset-{names[copied['kind']]}-webhook-configuration"
        for webhook in copied["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": url + path, "caBundle": bundle}
        changed.append(copied)
    return changed


def _service_account(namespace: str, name: str) -> Obj:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _claims(runtimes: Iterable[Obj]) -> list[Obj]:
    """Return the PersistentVolumeClaims that runtimes name, but that Trainer does not create.

    Before Trainer 2.2 the users of some shipped runtimes create them.
    """
    jobs = [job for it in runtimes for job in it["spec"]["template"]["spec"]["replicatedJobs"]]
    pods = [job["template"]["spec"]["template"].get("spec", {}) for job in jobs]
    volumes = [volume for pod in pods for volume in pod.get("volumes", ())]
    names = {it[_CLAIM]["claimName"] for it in volumes if _CLAIM in it}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": PVCS.kind,
            "metadata": {"namespace": "default", "name": name},
            "spec": spec,
        }
        for name in sorted(names)
    ]


def _manager_config(layout: ClusterLayout, name: str, group: str) -> dict[str, Any]:
    return {
        "apiVersion": f"config.{group}/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{layout.ports[f'{name}-health']}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": layout.ports[f"{name}-webhook"]},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 1000, "burst": 2000},
    }


def _jobset_config(layout: ClusterLayout) -> dict[str, Any]:
    config = _manager_config(layout, "jobset", "jobset.x-k8s.io")
    config["webhook"]["certDir"] = str(layout.serving.certificate.parent)
    config["internalCertManagement"] = {"enable": False}
    return config


def _trainer_config(layout: ClusterLayout) -> dict[str, Any]:
    config = _manager_config(layout, "trainer", "trainer.kubeflow.org")
    config["certManagement"] = {"enable": False}
    config["controller"] = {"groupKindConcurrency": {"TrainJob.trainer.kubeflow.org": 5}}
    return config


def _write_json(layout: ClusterLayout, name: str, content: dict[str, Any]) -> None:
    (layout.run / name).write_text(json.dumps(content, indent=1))
