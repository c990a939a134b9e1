"""What every process builds alike, out of its settings: its candidate for a Lease, its Events.

Whoever wants to build them otherwise uses their classes; nothing here has a state of its own.
"""

import socket
from uuid import uuid4

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key
from trainer_kai.kube.claim import Claim
from trainer_kai.kube.client import Client
from trainer_kai.kube.events import EventApi, EventSettings, Outcome, Recorder
from trainer_kai.kube.leader import Elector
from trainer_kai.kube.lease import LeaseTiming
from trainer_kai.kube.lease_api import LeaseApi
from trainer_kai.metrics import Metrics
from trainer_kai.settings import Leader

__all__ = ["elector", "recorder", "timing"]


def elector(
    client: Client, settings: Leader, metrics: Metrics, log: FilteringBoundLogger, *, name: str = ""
) -> Elector:
    """Return a candidate for the Lease of the settings; its `lead` is the service.

    *name* is what people know this process by, otherwise the name of its pod or machine. Something
    random follows it: a container that is started again has the name of the one before it.
    """
    key = Key(settings.namespace or client.access.namespace, settings.name)
    leads = metrics.leader.labels(key.name)
    identity = f"{name or socket.gethostname()}_{uuid4()}"
    claim = Claim(LeaseApi(client, key), identity, timing(settings), client.clock)
    return Elector(claim, log.bind(lease=str(key)), tell=lambda it: leads.set(int(it)))


def timing(settings: Leader) -> LeaseTiming:
    """Return how long everything takes."""
    return LeaseTiming(
        settings.lease_s, settings.renew_deadline_s, settings.retry_s, settings.write_s
    )


def recorder(
    client: Client, component: str, metrics: Metrics, log: FilteringBoundLogger
) -> Recorder:
    """Return what says things about objects in the name of a component; `run` is the service."""

    def count(outcome: Outcome) -> None:
        metrics.events.labels(outcome).inc()

    whose = EventSettings(component, socket.gethostname())
    return Recorder(EventApi(client), whose, client.clock, log, count=count)
