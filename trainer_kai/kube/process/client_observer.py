"""Metrics and log lines for the client and its watches.

A failure is logged when it begins, when its reason changes and when it ends: an API server that is
down for an hour is three lines, not thousands.
"""

from collections import defaultdict
from typing import Final, NamedTuple

from trainer_kai.kube.rest.errors import ApiError, WatchExpired
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.watch.decode import UnreadableObject
from trainer_kai.service.log import logger
from trainer_kai.service.metrics import Metrics

_LOG: Final = logger(__name__)
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class RequestInfo(NamedTuple):
    """The verb and the resource of a request, as in RBAC."""

    verb: str
    resource: str  # pods, pods/binding; "" if the path is not an object


def request_info(request: Request) -> RequestInfo:
    """Parse the path of a request."""
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]  # /namespaces/a/pods; but /namespaces/a is a namespace
    if not parts:
        return RequestInfo("get", "")
    resource = "/".join((parts[0], *parts[2:]))
    if request.method != "GET":
        return RequestInfo(_VERBS[request.method], resource)
    if ("watch", "true") in request.query:
        return RequestInfo("watch", resource)
    return RequestInfo("get" if len(parts) > 1 else "list", resource)


class ClientObserver:
    """Counts requests and watch events, and logs problems of watches."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._troubles: dict[str, str] = defaultdict(str)

    def answered(self, request: Request, status: int, seconds: float) -> None:
        """Count a response, or that none arrived."""
        verb, resource = request_info(request)
        status_class = f"{status // 100}xx" if status else "none"
        self._metrics.api_requests.labels(verb, resource, status_class).inc()
        self._metrics.api_request_seconds.labels(verb, resource).observe(seconds)

    def repeated(self, request: Request) -> None:
        """Count a request that is sent again."""
        self._metrics.api_retries.labels(*request_info(request)).inc()

    def watch_read(self, resource: str, event: str) -> None:
        """Count an event; the first one after a failure ends the failure."""
        self._metrics.watch_events.labels(resource, event).inc()
        if self._troubles[resource] and event != "PAGE":  # a list may not lead to a watch
            self._troubles[resource] = ""
            _LOG.info("watch continues", resource=resource)

    def watch_ended(self, resource: str, trouble: str, error: ApiError | None) -> None:
        """Count the end of a watch, and log the reason if it is new and not normal."""
        cause = "time" if error is None else type(error).__name__
        self._metrics.watch_restarts.labels(resource, cause).inc()
        if isinstance(error, WatchExpired):  # normal after a restart of an API server
            self._metrics.watch_relists.labels(resource).inc()
            if trouble:
                _LOG.info("watch lists again", resource=resource)
        elif trouble and trouble != self._troubles[resource]:
            _LOG.warning("watch interrupted", resource=resource, trouble=trouble)
        self._troubles[resource] = trouble or self._troubles[resource]

    def watch_skipped(self, resource: str, unreadable: UnreadableObject) -> None:
        """Count an object that cannot be decoded, and log its name and the fault."""
        self._metrics.watch_unreadable.labels(resource).inc()
        key, error = str(unreadable.metadata.key), str(unreadable.error)
        _LOG.warning("object ignored", resource=resource, key=key, error=error)
