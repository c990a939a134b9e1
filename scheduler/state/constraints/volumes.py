"""Volume claims of pods: the nodes that reach their volumes, and the pods that share a claim."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure
from scheduler.core.model.resources import NONE, Ints
from scheduler.state.inputs import Cluster
from scheduler.state.nodes.labels import Alternatives, NodeLabels
from scheduler.state.podgroups.podgroup import PodGroupRecord
from scheduler.state.podgroups.reservations import Reservations
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import DONE, PodTable
from trainer_kai.api.cluster_kinds import PersistentVolume, PersistentVolumeClaim
from trainer_kai.api.meta import Key
from trainer_kai.api.names import NO_PROVISIONER, SELECTED_NODE
from trainer_kai.api.quantity import Quantity, QuantityError, whole

_ClaimSignature: TypeAlias = tuple[str, Key | None, frozenset[str], int]
_VolumeKind: TypeAlias = tuple[frozenset[str], Alternatives | None]
_ONE_NODE: Final = "ReadWriteOnce"
_ONE_POD: Final = "ReadWriteOncePod"
_STORAGE: Final = "storage"


class _ClassClaims(NamedTuple):
    """The claims of one pod class: the node affinity of their volumes, and failures."""

    node_affinity: tuple[Alternatives, ...] = ()
    failures: tuple[PreFilterFailure, ...] = ()


_NO_CLAIMS: Final = _ClassClaims()


class _FreeVolumes(NamedTuple):
    modes: frozenset[str]
    places: Alternatives | None  # the nodes that reach them; None is all nodes
    size: int


class VolumeClaims:
    """The claims that several pods use, as rows; and for each class the affinity of its claims."""

    def __init__(self, cluster: Cluster, shared: tuple[Key, ...], labels: NodeLabels) -> None:
        self._cluster: Final = cluster
        self._labels: Final = labels
        self._by_class: Final[dict[int, _ClassClaims]] = {}
        self._rows: Final = {claim: row for row, claim in enumerate(shared)}
        self._free: dict[tuple[str, Key | None], tuple[_FreeVolumes, ...]] | None = None
        self._places_by_signature: Final[dict[_ClaimSignature, Alternatives | None]] = {}

    def forget(self, number: int) -> None:
        self._by_class.pop(number, None)

    def failures(self, pod_class: PodClass) -> tuple[PreFilterFailure, ...]:
        """Return why claims keep pods from every node; the caller adds the name of a pod."""
        return self._class_claims(pod_class).failures

    def node_affinity(self, pod_class: PodClass) -> tuple[Alternatives, ...]:
        """Return the nodes that reach the volumes, or where the volumes can be created."""
        return self._class_claims(pod_class).node_affinity

    def rows(self, pod_class: PodClass, *, one_pod: bool) -> tuple[int, ...]:
        """Return the shared claims of a class that one node, or one pod, may use at a time."""
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
            places = [self._places_of(claim, pod_class) for claim in claim_keys(pod_class)]
            class_claims = self._by_class[pod_class.number] = _ClassClaims(
                tuple(it for it in places if not isinstance(it, PreFilterFailure) and it),
                tuple(it for it in places if isinstance(it, PreFilterFailure)),
            )
        return class_claims

    def _places_of(self, key: Key, pod_class: PodClass) -> Alternatives | PreFilterFailure:
        """Return the nodes where a claim can be used, empty for all; or why it cannot be used."""
        claim = self._cluster.claims.get(key)
        if claim is None:
            if pod_class.ephemeral_pod_name:
                return _failure(PreFilterCause.VOLUME_CLAIM_NOT_CREATED, key.name)
            return _failure(PreFilterCause.VOLUME_CLAIM_MISSING, key.name)
        if claim.metadata.deletion_timestamp:
            return _failure(PreFilterCause.VOLUME_CLAIM_TERMINATING, key.name)
        if claim.status.phase == "Lost":
            return _failure(PreFilterCause.VOLUME_CLAIM_LOST, key.name)
        if claim.spec.volume_name:
            return self._bound(claim)
        return self._unbound(claim)

    def _bound(self, claim: PersistentVolumeClaim) -> Alternatives | PreFilterFailure:
        name = claim.spec.volume_name
        volume = self._cluster.volumes.get(name)
        if volume is None:
            return _failure(PreFilterCause.VOLUME_MISSING, claim.metadata.name, name)
        return self._reachable_from(volume) or ()

    def _unbound(self, claim: PersistentVolumeClaim) -> Alternatives | PreFilterFailure:
        storage_class = self._cluster.storage_classes.get(claim.spec.storage_class_name or "")
        if storage_class is None or storage_class.volume_binding_mode != "WaitForFirstConsumer":
            return _failure(PreFilterCause.VOLUME_CLAIM_UNBOUND, claim.metadata.name)
        node = claim.metadata.annotations.get(SELECTED_NODE)
        if node:
            return self._labels.match_node(node)
        if storage_class.provisioner != NO_PROVISIONER:
            return self._labels.match_topologies(storage_class.allowed_topologies)
        places = self._free_places(claim)
        if places is None:
            names = claim.metadata.name, storage_class.metadata.name
            return _failure(PreFilterCause.NO_VOLUME_LEFT, *names)
        return places

    def _free_places(self, claim: PersistentVolumeClaim) -> Alternatives | None:
        """Return the nodes that reach a free volume that suits; None if there is no such volume."""
        size = _size(claim.spec.resources.requests)
        if size is None:
            return None
        if self._free is None:
            self._free = self._read_free()
        name, modes = claim.spec.storage_class_name or "", frozenset(claim.spec.access_modes)
        reserved_for = claim.metadata.key if (name, claim.metadata.key) in self._free else None
        signature = name, reserved_for, modes, size
        if signature not in self._places_by_signature:  # many claims are equal
            volumes = self._free.get((name, None), ())
            if reserved_for is not None:
                volumes = self._free[name, reserved_for] + volumes
            self._places_by_signature[signature] = _union(
                [one.places for one in volumes if one.size >= size and modes <= one.modes]
            )
        return self._places_by_signature[signature]

    def _read_free(self) -> dict[tuple[str, Key | None], tuple[_FreeVolumes, ...]]:
        """Return the free volumes, by storage class and by the claim that a claimRef names."""
        sizes: dict[tuple[str, Key | None], dict[_VolumeKind, int]] = {}
        for _, volume in sorted(self._cluster.volumes.items()):
            spec, size = volume.spec, _size(volume.spec.capacity)
            if size is not None and _is_free(volume):
                claim_ref = spec.claim_ref
                reserved_for = Key(claim_ref.namespace, claim_ref.name) if claim_ref else None
                size_by_kind = sizes.setdefault((spec.storage_class_name, reserved_for), {})
                volume_kind = frozenset(spec.access_modes), self._reachable_from(volume)
                size_by_kind[volume_kind] = max(size_by_kind.get(volume_kind, 0), size)
        return {
            key: tuple(_FreeVolumes(*volume_kind, size) for volume_kind, size in by_kind.items())
            for key, by_kind in sizes.items()
        }

    def _reachable_from(self, volume: PersistentVolume) -> Alternatives | None:
        """Return the nodes that reach a volume; None is all nodes."""
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return None
        return self._labels.match_node_selector(affinity.required) or self._labels.match_no_node()


def claim_keys(pod_class: PodClass) -> tuple[Key, ...]:
    return tuple(dict.fromkeys(_named_claims(pod_class)))


def is_exclusive(cluster: Cluster, claim: Key) -> bool:
    modes = _modes(cluster, claim)
    return _ONE_POD in modes or set(modes) == {_ONE_NODE}


def _named_claims(pod_class: PodClass) -> Iterator[Key]:
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


def _union(places: list[Alternatives | None]) -> Alternatives | None:
    """Return the nodes that reach any of some volumes, empty for all; None without volumes."""
    if not places:
        return None
    if None in places:
        return ()
    return tuple(dict.fromkeys(one for place in places for one in place or ()))


def _size(amounts: Mapping[str, Quantity]) -> int | None:
    try:
        return whole(amounts.get(_STORAGE, 0))
    except QuantityError:
        return None


def _failure(cause: PreFilterCause, *names: str) -> PreFilterFailure:
    return PreFilterFailure(cause, names)


class SharedClaims:
    """The claims that several pods use and only one node or pod may use at a time."""

    def __init__(self, cluster: Cluster, pod_table: PodTable) -> None:
        self._cluster: Final = cluster
        self._pod_table: Final = pod_table
        self._read_for: tuple[object, ...] = ()
        self._classes_by_claim: dict[Key, list[PodClass]] = {}
        # By PodGroup: the pods with volumes that do not exist yet.
        self.expected_pods: Final[dict[Key, Counter[PodClass]]] = {}

    @property
    def claims(self) -> tuple[Key, ...]:
        return tuple(self._classes_by_claim)

    def expect(self, key: Key, record: PodGroupRecord | None, reservations: Reservations) -> None:
        """Store how many pods with volumes a PodGroup may still get."""
        self.expected_pods.pop(key, None)
        if record is None or not record.is_active:
            return
        expected: Counter[PodClass] = Counter()
        for reserved in reservations.of_podgroup(record).values():
            expected[reserved.pod_class] += len(reserved.places)
        for podset, (pod_class, _) in record.expected.items():
            expected[pod_class] += record.expected_count(podset)
        expected = Counter(
            {pod_class: count for pod_class, count in expected.items() if pod_class.spec.volumes}
        )
        if expected:
            self.expected_pods[key] = expected

    def update(self, pod_counts: Ints, version: int) -> tuple[Key, ...]:
        """Return the claims that are shared, computed again only if anything has changed."""
        classes, expected = self._pod_table.class_table, Counter[PodClass]()
        for counts in self.expected_pods.values():
            expected.update(counts)
        numbers = np.flatnonzero(classes.has_volumes[: len(pod_counts)])
        alive = pod_counts[numbers, :DONE].sum(axis=1)
        expected_serials = tuple((pod_class.serial, count) for pod_class, count in expected.items())
        inputs = version, classes.serial[numbers].tobytes(), alive.tobytes(), expected_serials
        if inputs != self._read_for:
            self._read_for = inputs
            count_of = Counter(expected)
            for number, count in zip(numbers.tolist(), alive.tolist(), strict=True):
                count_of[classes[number]] += count
            self._read(count_of)
        return self.claims

    def claim_usage(self, reserved: Mapping[tuple[int, int], int]) -> tuple[tuple[int, int], ...]:
        """Return the node where each claim is in use, and by how many pods or reserved places."""
        reserved_rows: dict[int, Counter[int]] = {}
        for (number, row), count in reserved.items() if self._classes_by_claim else ():
            reserved_rows.setdefault(number, Counter())[row] += count
        node = self._pod_table.node
        usage = []
        for classes in self._classes_by_claim.values():
            rows = Counter(
                int(node[pod_row]) for pod_class in classes for pod_row in pod_class.pod_rows
            )
            del rows[NONE]
            for pod_class in classes:
                rows.update(reserved_rows.get(pod_class.number, {}))
            usage.append((min(rows, default=NONE), rows.total()))
        return tuple(usage)

    def _read(self, count_of: Mapping[PodClass, int]) -> None:
        pods_by_claim: Counter[Key] = Counter()
        classes_by_claim: dict[Key, list[PodClass]] = {}
        for pod_class, count in count_of.items():
            for claim in claim_keys(pod_class) if count else ():
                if is_exclusive(self._cluster, claim):
                    pods_by_claim[claim] += count
                    classes_by_claim.setdefault(claim, []).append(pod_class)
        self._classes_by_claim = {
            claim: classes_by_claim[claim]
            for claim in sorted(classes_by_claim)
            if pods_by_claim[claim] > 1
        }
