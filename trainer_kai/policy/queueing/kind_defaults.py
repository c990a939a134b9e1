"""What counts for a PodGroup that requests nothing itself, by the kind of its owner.

Admission, `plan` and the podgrouper read this one table. The setting `kind_defaults` changes it. A
class need not exist: then the default priority of the cluster counts.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from trainer_kai.policy.queueing.priority_classes import DEFAULT_PRIORITY_CLASS


class KindDefault(NamedTuple):
    priority_class: str
    preemptibility: str = ""  # "": the value of the class decides


# As in KAI; all other kinds train.
OF_KAI: Final = MappingProxyType(
    {
        "Deployment.apps": KindDefault("inference"),
        "Notebook.kubeflow.org": KindDefault("build"),
        "Revision.serving.knative.dev": KindDefault("inference"),
        "SPOTRequest.egx.nvidia.io": KindDefault("inference"),
    }
)
_TRAIN: Final = KindDefault(DEFAULT_PRIORITY_CLASS)


class KindDefaults(NamedTuple):
    """What the setting says, by `Kind.group` or, for all groups, by `Kind`."""

    chosen: Mapping[str, tuple[str, str]] = MappingProxyType({})

    def of(self, group: str, kind: str) -> KindDefault:
        full_name = f"{kind}.{group}"
        chosen = self.chosen.get(full_name) or self.chosen.get(kind)
        return KindDefault(*chosen) if chosen else OF_KAI.get(full_name, _TRAIN)


NO_CHANGES: Final = KindDefaults()
