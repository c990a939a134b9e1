"""How each program of the chain is called. Pure: paths and ports in, argument lists out."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from e2e.cluster.certificates import KeyPair

__all__ = ["Ground", "Program", "all_programs"]


class Program(NamedTuple):
    """One process to run."""

    name: str
    argv: list[str]
    environment: Mapping[str, str] = {}
    ready_url: str | None = None


class Ground(NamedTuple):
    """Where one cluster stands: its run folder, the programs, its ports and certificates."""

    run: Path
    programs: Path
    ports: Mapping[str, int]
    authority: Path
    serving: KeyPair
    service_accounts: KeyPair

    def url(self, port: str, scheme: str = "http") -> str:
        """Return the loopback address of one of the ports."""
        return f"{scheme}://127.0.0.1:{self.ports[port]}"

    def kubeconfig(self, user: str) -> Path:
        """Return where the kubeconfig of a user lies."""
        return self.run / "kubeconfigs" / f"{user}.yaml"


def all_programs(ground: Ground) -> dict[str, Program]:
    """Return every program of the chain by its name."""
    makers = (
        _etcd,
        _kube_apiserver,
        _kube_controller_manager,
        _kube_scheduler,
        _jobset,
        _trainer,
        _kwok,
    )
    programs = [maker(ground) for maker in makers]
    return {program.name: program for program in programs}


def _etcd(ground: Ground) -> Program:
    client, peer = ground.url("etcd"), ground.url("etcd-peer")
    return Program(
        "etcd",
        [
            str(ground.programs / "etcd"),
            f"--data-dir={ground.run / 'etcd'}",
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


def _kube_apiserver(ground: Ground) -> Program:
    return Program(
        "kube-apiserver",
        [
            str(ground.programs / "kube-apiserver"),
            f"--etcd-servers={ground.url('etcd')}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={ground.ports['kube-apiserver']}",
            f"--tls-cert-file={ground.serving.certificate}",
            f"--tls-private-key-file={ground.serving.key}",
            f"--client-ca-file={ground.authority}",
            f"--token-auth-file={ground.run / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={ground.service_accounts.certificate}",
            f"--service-account-signing-key-file={ground.service_accounts.key}",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--allow-privileged",
            f"--audit-policy-file={ground.run / 'audit-policy.json'}",
            f"--audit-log-path={ground.run / 'logs' / 'audit.jsonl'}",
            "--audit-log-maxsize=0",  # one file for good: a mark is a place in it
        ],
        ready_url=f"{ground.url('kube-apiserver', 'https')}/readyz",
    )


def _kube_controller_manager(ground: Ground) -> Program:
    return Program(
        "kube-controller-manager",
        [
            str(ground.programs / "kube-controller-manager"),
            f"--kubeconfig={ground.kubeconfig('kube-controller-manager')}",
            f"--service-account-private-key-file={ground.service_accounts.key}",
            f"--root-ca-file={ground.authority}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            "--concurrent-job-syncs=20",
        ],
    )


def _kube_scheduler(ground: Ground) -> Program:
    return Program(
        "kube-scheduler",
        [
            str(ground.programs / "kube-scheduler"),
            f"--kubeconfig={ground.kubeconfig('kube-scheduler')}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--kube-api-qps=2000",
            "--kube-api-burst=4000",
        ],
    )


def _jobset(ground: Ground) -> Program:
    return Program(
        "jobset",
        [
            str(ground.programs / "jobset"),
            f"--config={ground.run / 'jobset.yaml'}",
            f"--kubeconfig={ground.kubeconfig('jobset')}",
        ],
        ready_url=f"{ground.url('jobset-health')}/readyz",
    )


def _trainer(ground: Ground) -> Program:
    return Program(
        "trainer",
        [
            str(ground.programs / "trainer-controller-manager"),
            f"--config={ground.run / 'trainer.yaml'}",
            f"--kubeconfig={ground.kubeconfig('trainer')}",
        ],
        # It looks for its certificate below TMPDIR and has no flag for it.
        environment={"TMPDIR": str(ground.run / "trainer-tmp")},
        ready_url=f"{ground.url('trainer-health')}/readyz",
    )


def _kwok(ground: Ground) -> Program:
    return Program(
        "kwok",
        [
            str(ground.programs / "kwok"),
            f"--kubeconfig={ground.kubeconfig('kwok')}",
            f"--config={ground.run / 'stages.yaml'}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
        ],
    )
