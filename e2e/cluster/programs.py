"""How each program of the chain is called. Pure: paths and ports in, argument lists out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from e2e.cluster.certificates import KeyPair

_GO: Final = {"GOGC": "400"}  # a tenth less processor for half a gigabyte, of each API server
# Nothing here reads Endpoints: there are no proxy and no DNS. To keep them takes every 15th write.
_NO_CONTROLLERS: Final = (
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
)


class Program(NamedTuple):
    """One process to run."""

    name: str
    argv: list[str]
    environment: Mapping[str, str] = {}
    ready_url: str | None = None


class ClusterLayout(NamedTuple):
    """Where one cluster stands: its run folder, the programs, its ports and certificates."""

    run: Path
    programs: Mapping[str, Path]  # the programs built, by name
    ports: Mapping[str, int]
    authority: Path
    serving: KeyPair
    service_accounts: KeyPair

    @property
    def etcd_data(self) -> Path:
        """Return the folder of etcd's data."""
        return self.run / "etcd"

    def url(self, port: str, scheme: str = "http") -> str:
        """Return the loopback address of one of the ports."""
        return f"{scheme}://127.0.0.1:{self.ports[port]}"

    def kubeconfig(self, user: str) -> Path:
        """Return where the kubeconfig of a user lies."""
        return self.run / "kubeconfigs" / f"{user}.yaml"


def all_programs(layout: ClusterLayout) -> dict[str, Program]:
    """Return every program of the chain by its name; kube-scheduler only if it is built."""
    makers = [_etcd, _kube_apiserver, _kube_controller_manager, _jobset, _trainer, _kwok]
    if "kube-scheduler" in layout.programs:
        makers.append(_kube_scheduler)
    programs = [maker(layout) for maker in makers]
    return {it.name: it._replace(environment={**_GO, **it.environment}) for it in programs}


def _etcd(layout: ClusterLayout) -> Program:
    client, peer = layout.url("etcd"), layout.url("etcd-peer")
    return Program(
        "etcd",
        [
            str(layout.programs["etcd"]),
            f"--data-dir={layout.etcd_data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # the data dies with the cluster
            f"--quota-backend-bytes={8 << 30}",
            "--log-level=warn",
        ],
        ready_url=f"{client}/health",
    )


def _kube_apiserver(layout: ClusterLayout) -> Program:
    return Program(
        "kube-apiserver",
        [
            str(layout.programs["kube-apiserver"]),
            f"--etcd-servers={layout.url('etcd')}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={layout.ports['kube-apiserver']}",
            f"--tls-cert-file={layout.serving.certificate}",
            f"--tls-private-key-file={layout.serving.key}",
            f"--client-ca-file={layout.authority}",
            f"--token-auth-file={layout.run / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={layout.service_accounts.certificate}",
            f"--service-account-signing-key-file={layout.service_accounts.key}",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--allow-privileged",
            f"--audit-policy-file={layout.run / 'audit-policy.json'}",
            f"--audit-log-path={layout.run / 'logs' / 'audit.jsonl'}",
            "--audit-log-maxsize=0",  # one file for good: a mark is a place in it
        ],
        ready_url=f"{layout.url('kube-apiserver', 'https')}/readyz",
    )


def _kube_controller_manager(layout: ClusterLayout) -> Program:
    return Program(
        "kube-controller-manager",
        [
            str(layout.programs["kube-controller-manager"]),
            f"--kubeconfig={layout.kubeconfig('kube-controller-manager')}",
            f"--service-account-private-key-file={layout.service_accounts.key}",
            f"--root-ca-file={layout.authority}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            "--concurrent-job-syncs=20",
            f"--controllers=*,{','.join(f'-{it}' for it in _NO_CONTROLLERS)}",
        ],
    )


def _kube_scheduler(layout: ClusterLayout) -> Program:
    return Program(
        "kube-scheduler",
        [
            str(layout.programs["kube-scheduler"]),
            f"--kubeconfig={layout.kubeconfig('kube-scheduler')}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--kube-api-qps=2000",
            "--kube-api-burst=4000",
        ],
    )


def _jobset(layout: ClusterLayout) -> Program:
    return Program(
        "jobset",
        [
            str(layout.programs["jobset"]),
            f"--config={layout.run / 'jobset.yaml'}",
            f"--kubeconfig={layout.kubeconfig('jobset')}",
        ],
        ready_url=f"{layout.url('jobset-health')}/readyz",
    )


def _trainer(layout: ClusterLayout) -> Program:
    return Program(
        "trainer",
        [
            str(layout.programs["trainer-controller-manager"]),
            f"--config={layout.run / 'trainer.yaml'}",
            f"--kubeconfig={layout.kubeconfig('trainer')}",
        ],
        # It looks for its certificate below TMPDIR and has no flag for it.
        environment={"TMPDIR": str(layout.run / "trainer-tmp")},
        ready_url=f"{layout.url('trainer-health')}/readyz",
    )


def _kwok(layout: ClusterLayout) -> Program:
    return Program(
        "kwok",
        [
            str(layout.programs["kwok"]),
            f"--kubeconfig={layout.kubeconfig('kwok')}",
            f"--config={layout.run / 'stages.yaml'}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
        ],
    )
