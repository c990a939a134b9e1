"""Access from inside a pod: two files and two variables that every pod has.

The official package offers the same, but importing it costs each process the time and memory that
`make bench` prints under "import".
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.auth.rest_config import RestConfig, ServerTrust, TokenFile
from trainer_kai.service.clock import Clock

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"


def is_in_cluster(environ: Mapping[str, str]) -> bool:
    """Say whether this process runs in a pod with access to the API server."""
    return bool(environ.get(_HOST))


def in_cluster_config(
    environ: Mapping[str, str], clock: Clock, folder: Path = SERVICE_ACCOUNT
) -> RestConfig:
    """Return the RestConfig of the pod's ServiceAccount."""
    host, port = environ.get(_HOST, ""), environ.get(_PORT) or "443"
    where = f"[{host}]" if ":" in host else host
    return RestConfig(
        server=f"https://{where}:{port}",
        credentials=TokenFile(folder / "token", clock),
        trust=ServerTrust(authority=_read(folder / "ca.crt")),
        namespace=_read(folder / "namespace").strip() or "default",
        origin="the ServiceAccount of the pod",
    )


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError as error:
        message = f"{error.strerror}; does the pod set automountServiceAccountToken: false?"
        raise ConfigError([FieldError(str(file), message)]) from error
