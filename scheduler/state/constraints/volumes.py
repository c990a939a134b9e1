"""Volume claims of pods: from which nodes they can be reached, and which pods share them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from scheduler.core.model.failures import PreFilterFailure, UnschedulableReason
from scheduler.core.model.resources import NONE, Ints
from scheduler.state.inputs import Cluster
from scheduler.state.nodes.labels import Alternatives, NodeLabels
from scheduler.state.podgroups.podgroup import PodGroupRecord
from scheduler.state.podgroups.reservations import Reservations
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import DONE, PodTable
from trainer_kai.api.meta import Key
from trainer_kai.api.names import NO_PROVISIONER, SELECTED_NODE
from trainer_kai.api.quantity import Quantity, QuantityError, whole
from trainer_kai.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass

__all__ = [
    "SharedClaims",
    "VolumeClaims",
    "claim_keys",
    "is_exclusive",
]

_RETRY_ON: Final = frozenset({"claims", "volumes"})
_ClaimSignature: TypeAlias = tuple[str, Key | None, frozenset[str], int]
_VolumeKind: TypeAlias = tuple[frozenset[str], Alternatives | None]
_ONE_NODE: Final = "ReadWriteOnce"
_ONE_POD: Final = "ReadWriteOncePod"
_STORAGE: Final = "storage"


class _ClassClaims(NamedTuple):
    """Of one kin: what its claims ask of nodes, and what is wrong with them."""

    node_affinity: tuple[Alternatives, ...] = ()
    failures: tuple[PreFilterFailure, ...] = ()


class _FreeVolumes(NamedTuple):
    """Volumes that are alike but for their size, of which the largest counts."""

    modes: frozenset[str]
    places: Alternatives | None  # from where they can be reached; None is from everywhere
    size: int


class VolumeClaims:
    """The claims that several pods use, as rows; and for each kin what its claims mean."""

    def __init__(self, cluster: Cluster, shared: tuple[Key, ...], labels: NodeLabels) -> None:
        self._cluster: Final = cluster
        self._labels: Final = labels
        self._by_class: Final[dict[int, _ClassClaims]] = {}
        self._rows: Final = {claim: row for row, claim in enumerate(shared)}
        self._free: dict[tuple[str, Key | None], tuple[_FreeVolumes, ...]] | None = None
        self._places_by_signature: Final[dict[_ClaimSignature, Alternatives | None]] = {}

    def forget(self, number: int) -> None:
        """Forget a kin: another has its number."""
        self._by_class.pop(number, None)

    def failures(self, pod_class: PodClass) -> tuple[PreFilterFailure, ...]:
        """Return why claims keep pods from being placed at all; their name is to come before."""
        return self._class_claims(pod_class).failures

    def node_affinity(self, pod_class: PodClass) -> tuple[Alternatives, ...]:
        """Return from where volumes can be reached, or where they can be made."""
        return self._class_claims(pod_class).node_affinity

    def rows(self, pod_class: PodClass, *, one_pod: bool) -> tuple[int, ...]:
        """Return the shared claims of pods that one node, or one pod, may use at a time."""
        if not pod_class.spec.volumes:
            return ()
        return tuple(
            self._rows[claim]
            for claim in claim_keys(pod_class)
            if claim in self._rows and (_ONE_POD in _modes(self._cluster, claim)) == one_pod
        )

    def _class_claims(self, pod_class: PodClass) -> _ClassClaims:
        if not pod_class.spec.volumes:
            return _NO_CLAIMS
        class_claims = self._by_class.get(pod_class.number)
        if class_claims is None:
            found = [self._places_of(claim, pod_class) for claim in claim_keys(pod_class)]
            class_claims = self._by_class[pod_class.number] = _ClassClaims(
                tuple(
                    places
                    for places in found
                    if not isinstance(places, PreFilterFailure) and places
                ),
                tuple(
                    prefilter_failure
                    for prefilter_failure in found
                    if isinstance(prefilter_failure, PreFilterFailure)
                ),
            )
        return class_claims

    def _places_of(self, key: Key, pod_class: PodClass) -> Alternatives | PreFilterFailure:
        """Return where a claim can be used, nothing for everywhere; or why nowhere."""
        claim = self._cluster.claims.get(key)
        if claim is None:
            if pod_class.ephemeral_pod_name:
                message = f": its claim {key.name} has not been made yet"
                return PreFilterFailure(UnschedulableReason.NO_NODE_MATCHES, message, _RETRY_ON)
            return _misconfigured(f": claim {key.name} does not exist")
        if claim.metadata.deletion_timestamp:
            return _misconfigured(f": claim {key.name} is being deleted")
        if claim.status.phase == "Lost":
            return _misconfigured(f": claim {key.name} has lost its volume")
        if claim.spec.volume_name:
            return self._bound(claim)
        return self._unbound(claim)

    def _bound(self, claim: PersistentVolumeClaim) -> Alternatives | PreFilterFailure:
        name = claim.spec.volume_name
        volume = self._cluster.volumes.get(name)
        if volume is None:
            subject = f": claim {claim.metadata.name}"
            return _misconfigured(f"{subject} has the volume {name}, which does not exist")
        return self._reachable_from(volume) or ()

    def _unbound(self, claim: PersistentVolumeClaim) -> Alternatives | PreFilterFailure:
        known = self._cluster.storage_classes.get(claim.spec.storage_class_name or "")
        if known is None or known.volume_binding_mode != "WaitForFirstConsumer":
            message = f": claim {claim.metadata.name} is not bound to a volume yet"
            return PreFilterFailure(UnschedulableReason.NO_NODE_MATCHES, message, _RETRY_ON)
        node = claim.metadata.annotations.get(SELECTED_NODE)
        if node:
            return self._labels.match_node(node)
        if known.provisioner != NO_PROVISIONER:
            return self._labels.match_topologies(known.allowed_topologies)
        return self._places_or_failure(claim, known)

    def _places_or_failure(
        self, claim: PersistentVolumeClaim, known: StorageClass
    ) -> Alternatives | PreFilterFailure:
        """Return where there are volumes that nobody has."""
        places = self._places_left(claim)
        if places is None:
            message = (
                f": no volume of the class {known.metadata.name} is left"
                f" for claim {claim.metadata.name}"
            )
            return PreFilterFailure(UnschedulableReason.NO_NODE_MATCHES, message, _RETRY_ON)
        return places

    def _places_left(self, claim: PersistentVolumeClaim) -> Alternatives | None:
        """Return from where volumes that suit can be reached; None if there are none."""
        size = _size(claim.spec.resources.requests)
        if size is None:
            return None
        if self._free is None:
            self._free = self._read_free()
        name, modes = claim.spec.storage_class_name or "", frozenset(claim.spec.access_modes)
        kept_for = claim.metadata.key if (name, claim.metadata.key) in self._free else None
        signature = name, kept_for, modes, size
        if signature not in self._places_by_signature:  # many claims are alike
            some = self._free.get((name, None), ())
            if kept_for is not None:
                some = self._free[name, kept_for] + some
            self._places_by_signature[signature] = _joined(
                [one.places for one in some if one.size >= size and modes <= one.modes]
            )
        return self._places_by_signature[signature]

    def _read_free(self) -> dict[tuple[str, Key | None], tuple[_FreeVolumes, ...]]:
        """Return the volumes that nobody has, by class and by the claim that they are kept for."""
        found: dict[tuple[str, Key | None], dict[_VolumeKind, int]] = {}
        for _, volume in sorted(self._cluster.volumes.items()):
            spec, size = volume.spec, _size(volume.spec.capacity)
            if size is not None and _is_free(volume):
                kept_for = (
                    Key(spec.claim_ref.namespace, spec.claim_ref.name) if spec.claim_ref else None
                )
                alike = found.setdefault((spec.storage_class_name, kept_for), {})
                volume_kind = frozenset(spec.access_modes), self._reachable_from(volume)
                alike[volume_kind] = max(alike.get(volume_kind, 0), size)
        return {
            key: tuple(_FreeVolumes(*volume_kind, size) for volume_kind, size in alike.items())
            for key, alike in found.items()
        }

    def _reachable_from(self, volume: PersistentVolume) -> Alternatives | None:
        """Return from where a volume can be reached; None is from everywhere."""
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return None
        return self._labels.match_node_selector(affinity.required) or self._labels.match_no_node()


def claim_keys(pod_class: PodClass) -> tuple[Key, ...]:
    """Return the claims that pods name."""
    return tuple(dict.fromkeys(_named(pod_class)))


def is_exclusive(cluster: Cluster, claim: Key) -> bool:
    """Say whether only one node, or one pod, may use a claim at a time."""
    modes = _modes(cluster, claim)
    return _ONE_POD in modes or set(modes) == {_ONE_NODE}


def _named(pod_class: PodClass) -> Iterator[Key]:
    for volume in pod_class.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield Key(pod_class.namespace, volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            yield Key(pod_class.namespace, f"{pod_class.ephemeral_pod_name}-{volume.name}")


def _modes(cluster: Cluster, claim: Key) -> tuple[str, ...]:
    known = cluster.claims.get(claim)
    return known.spec.access_modes if known else ()


def _is_free(volume: PersistentVolume) -> bool:
    return volume.status.phase in {"", "Available"} and not volume.metadata.deletion_timestamp


def _joined(places: list[Alternatives | None]) -> Alternatives | None:
    """Return where any of some volumes can be reached, nothing for everywhere."""
    if not places:
        return None
    if None in places:
        return ()
    return tuple(dict.fromkeys(one for place in places for one in place or ()))


def _size(amounts: Mapping[str, Quantity]) -> int | None:
    """Return a size in bytes; None for what cannot be read."""
    try:
        return whole(amounts.get(_STORAGE, 0))
    except QuantityError:
        return None


def _misconfigured(message: str) -> PreFilterFailure:
    return PreFilterFailure(UnschedulableReason.MISCONFIGURED, message, _RETRY_ON)


_NO_CLAIMS: Final = _ClassClaims()


class SharedClaims:
    """By claim; only of those that are shared."""

    def __init__(self, cluster: Cluster, pod_table: PodTable) -> None:
        self._cluster: Final = cluster
        self._pod_table: Final = pod_table
        self._read_for: tuple[object, ...] = ()
        self._classes_by_claim: dict[Key, list[PodClass]] = {}
        self.expected_pods: Final[
            dict[Key, Counter[PodClass]]
        ] = {}  # gangs: pods with volumes to come

    @property
    def claims(self) -> tuple[Key, ...]:
        """Return the claims that are shared."""
        return tuple(self._classes_by_claim)

    def expect(self, key: Key, record: PodGroupRecord | None, reservations: Reservations) -> None:
        """Take how many pods with volumes a gang may yet get."""
        self.expected_pods.pop(key, None)
        if record is None or not record.is_active:
            return
        found: Counter[PodClass] = Counter()
        for reserved in reservations.of_podgroup(record).values():
            found[reserved.pod_class] += len(reserved.places)
        for podset, (pod_class, _) in record.expected.items():
            found[pod_class] += record.expected_count(podset)
        found = Counter(
            {pod_class: count for pod_class, count in found.items() if pod_class.spec.volumes}
        )
        if found:
            self.expected_pods[key] = found

    def update(self, pod_counts: Ints, version: int) -> tuple[Key, ...]:
        """Return the claims that are shared; nothing is done if nothing has changed."""
        classes, to_come = self._pod_table.class_table, Counter[PodClass]()
        for found in self.expected_pods.values():
            to_come.update(found)
        numbers = np.flatnonzero(classes.has_volumes[: len(pod_counts)])
        alive = pod_counts[numbers, :DONE].sum(axis=1)
        coming = tuple((pod_class.serial, count) for pod_class, count in to_come.items())
        seen = version, classes.serial[numbers].tobytes(), alive.tobytes(), coming
        if seen != self._read_for:
            self._read_for = seen
            count_of = Counter(to_come)
            count_of.update(
                {
                    classes[n]: count
                    for n, count in zip(numbers.tolist(), alive.tolist(), strict=True)
                }
            )
            self._read(count_of)
        return self.claims

    def claim_usage(self, reserved: Mapping[tuple[int, int], int]) -> tuple[tuple[int, int], ...]:
        """Return on which node each claim is in use, and by how many pods; slots are as good."""
        at: dict[int, Counter[int]] = {}
        for (number, row), count in reserved.items() if self._classes_by_claim else ():
            at.setdefault(number, Counter())[row] += count
        node = self._pod_table.node
        found = []
        for classes in self._classes_by_claim.values():
            rows = Counter(
                int(node[pod_row]) for pod_class in classes for pod_row in pod_class.pod_rows
            )
            del rows[NONE]
            for pod_class in classes:
                rows.update(at.get(pod_class.number, {}))
            found.append((min(rows, default=NONE), rows.total()))
        return tuple(found)

    def _read(self, count_of: Mapping[PodClass, int]) -> None:
        number_of: Counter[Key] = Counter()
        classes_by_claim: dict[Key, list[PodClass]] = {}
        for pod_class, count in count_of.items():
            for claim in claim_keys(pod_class) if count else ():
                if is_exclusive(self._cluster, claim):
                    number_of[claim] += count
                    classes_by_claim.setdefault(claim, []).append(pod_class)
        self._classes_by_claim = {
            claim: classes_by_claim[claim]
            for claim in sorted(classes_by_claim)
            if number_of[claim] > 1
        }
