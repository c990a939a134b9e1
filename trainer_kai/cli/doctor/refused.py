"""Who refused a dry run, read from what the API server says: it has no field for that."""

import re
from enum import Enum
from typing import Final, NamedTuple

from trainer_kai.kube.errors import Refusal

__all__ = ["By", "Refused", "read_refusal"]

_DENIED: Final = re.compile(
    r'admission webhook "(?P<hook>[^"]+)" '
    r"(?:denied the request(?: without explanation)?:? ?|(?=does not support dry run))(?P<why>.*)",
    re.DOTALL,
)
_DENIED_BY_POLICY: Final = re.compile(
    r"\bpolicy ['\"](?P<policy>[^'\"]+)['\"](?: with binding '[^']*')? denied request: (?P<why>.*)",
    re.DOTALL,
)
_FAILED: Final = re.compile(r'failed calling webhook "(?P<hook>[^"]+)": (?P<why>.*)', re.DOTALL)
_NOT_ALLOWED: Final = re.compile(r'User "[^"]*" cannot ')
_UNTRUSTED: Final = re.compile(r"(?:tls|x509): .*", re.DOTALL)


class By(Enum):
    """Who it was."""

    OURS = "our webhook"
    OUR_POLICY = "our policy"
    OUR_OUTAGE = "our webhook does not answer"
    OTHER = "another webhook"
    OTHER_OUTAGE = "another webhook does not answer"
    ROLES = "the roles of the user"
    SERVER = "the API server"


class Refused(NamedTuple):
    """Who refused, by the name of his webhook or of our policy, and his words."""

    by: By
    hook: str
    why: str

    @property
    def untrusted(self) -> str:
        """Return why the API server does not trust our webhook, or "" where it does."""
        found = _UNTRUSTED.search(self.why) if self.by is By.OUR_OUTAGE else None
        return found.group() if found else ""


def read_refusal(
    refusal: Refusal, ours: frozenset[str], policies: frozenset[str] = frozenset()
) -> Refused:
    """Tell our own refusal from that of others, by the names of our webhooks and policies."""
    text = " ".join(refusal.message.split())
    denied, failed = _DENIED.search(text), _FAILED.search(text)
    if failed:
        hook, why = failed["hook"], failed["why"]
        return Refused(By.OUR_OUTAGE if hook in ours else By.OTHER_OUTAGE, hook, why)
    if denied:
        hook, why = denied["hook"], denied["why"] or "without a reason"
        return Refused(By.OURS if hook in ours else By.OTHER, hook, why)
    ruled = _DENIED_BY_POLICY.search(text)
    if ruled and ruled["policy"] in policies:
        return Refused(By.OUR_POLICY, ruled["policy"], ruled["why"])
    if refusal.status == 403 and _NOT_ALLOWED.search(text):
        return Refused(By.ROLES, "", text)
    return Refused(By.SERVER, "", text or f"{refusal.status} {refusal.reason}")
