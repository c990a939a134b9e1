"""Claims of pods: where their volumes can be reached, and who else uses them."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model import Bar, Verdict
from scheduler.state.cluster import Cluster
from scheduler.state.kin import Kin
from scheduler.state.labels import Alternatives, NodeLabels
from trainer_kai.api.meta import Key
from trainer_kai.api.names import NO_PROVISIONER, SELECTED_NODE
from trainer_kai.api.quantity import Quantity, QuantityError, whole
from trainer_kai.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass

__all__ = ["Claims", "claims_of", "is_exclusive"]

_WAKES_ON: Final = frozenset({"claims", "volumes"})
_Like: TypeAlias = tuple[str, Key | None, frozenset[str], int]
_Kind: TypeAlias = tuple[frozenset[str], Alternatives | None]
_ONE_NODE: Final = "ReadWriteOnce"
_ONE_POD: Final = "ReadWriteOncePod"
_STORAGE: Final = "storage"


class _Use(NamedTuple):
    """Of one kin: what its claims ask of nodes, and what is wrong with them."""

    any_of: tuple[Alternatives, ...] = ()
    bars: tuple[Bar, ...] = ()


class _Free(NamedTuple):
    """Volumes that are alike but for their size, of which the largest counts."""

    modes: frozenset[str]
    places: Alternatives | None  # from where they can be reached; None is from everywhere
    size: int


class Claims:
    """The claims that several pods use, as rows; and for each kin what its claims mean."""

    def __init__(self, cluster: Cluster, shared: tuple[Key, ...], labels: NodeLabels) -> None:
        self._cluster: Final = cluster
        self._labels: Final = labels
        self._uses: Final[dict[int, _Use]] = {}
        self._rows: Final = {claim: row for row, claim in enumerate(shared)}
        self._free: dict[tuple[str, Key | None], tuple[_Free, ...]] | None = None
        self._left_for: Final[dict[_Like, Alternatives | None]] = {}

    def forget(self, number: int) -> None:
        """Forget a kin: another has its number."""
        self._uses.pop(number, None)

    def bars(self, kin: Kin) -> tuple[Bar, ...]:
        """Return why claims keep pods from being placed at all; their name is to come before."""
        return self._use(kin).bars

    def any_of(self, kin: Kin) -> tuple[Alternatives, ...]:
        """Return from where volumes can be reached, or where they can be made."""
        return self._use(kin).any_of

    def rows(self, kin: Kin, *, one_pod: bool) -> tuple[int, ...]:
        """Return the shared claims of pods that one node, or one pod, may use at a time."""
        if not kin.spec.volumes:
            return ()
        return tuple(
            self._rows[claim]
            for claim in claims_of(kin)
            if claim in self._rows and (_ONE_POD in _modes(self._cluster, claim)) == one_pod
        )

    def _use(self, kin: Kin) -> _Use:
        if not kin.spec.volumes:
            return _FREE
        use = self._uses.get(kin.number)
        if use is None:
            found = [self._one(claim, kin) for claim in claims_of(kin)]
            use = self._uses[kin.number] = _Use(
                tuple(places for places in found if not isinstance(places, Bar) and places),
                tuple(bar for bar in found if isinstance(bar, Bar)),
            )
        return use

    def _one(self, key: Key, kin: Kin) -> Alternatives | Bar:
        """Return where a claim can be used, nothing for everywhere; or why nowhere."""
        claim = self._cluster.claims.get(key)
        if claim is None:
            if kin.own_name:
                message = f": its claim {key.name} has not been made yet"
                return Bar(Verdict.NO_NODE_MATCHES, message, _WAKES_ON)
            return _wrong(f": claim {key.name} does not exist")
        if claim.metadata.deletion_timestamp:
            return _wrong(f": claim {key.name} is being deleted")
        if claim.status.phase == "Lost":
            return _wrong(f": claim {key.name} has lost its volume")
        if claim.spec.volume_name:
            return self._bound(claim)
        return self._unbound(claim)

    def _bound(self, claim: PersistentVolumeClaim) -> Alternatives | Bar:
        name = claim.spec.volume_name
        volume = self._cluster.volumes.get(name)
        if volume is None:
            claimed = f": claim {claim.metadata.name}"
            return _wrong(f"{claimed} has the volume {name}, which does not exist")
        return self._reached(volume) or ()

    def _unbound(self, claim: PersistentVolumeClaim) -> Alternatives | Bar:
        known = self._cluster.storage_classes.get(claim.spec.storage_class_name or "")
        if known is None or known.volume_binding_mode != "WaitForFirstConsumer":
            message = f": claim {claim.metadata.name} is not bound to a volume yet"
            return Bar(Verdict.NO_NODE_MATCHES, message, _WAKES_ON)
        node = claim.metadata.annotations.get(SELECTED_NODE)
        if node:
            return self._labels.at_node(node)
        if known.provisioner != NO_PROVISIONER:
            return self._labels.of_topologies(known.allowed_topologies)
        return self._left(claim, known)

    def _left(self, claim: PersistentVolumeClaim, known: StorageClass) -> Alternatives | Bar:
        """Return where there are volumes that nobody has."""
        places = self._places_left(claim)
        if places is None:
            message = (
                f": no volume of the class {known.metadata.name} is left"
                f" for claim {claim.metadata.name}"
            )
            return Bar(Verdict.NO_NODE_MATCHES, message, _WAKES_ON)
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
        like = name, kept_for, modes, size
        if like not in self._left_for:  # many claims are alike
            some = self._free.get((name, None), ())
            if kept_for is not None:
                some = self._free[name, kept_for] + some
            self._left_for[like] = _joined(
                [one.places for one in some if one.size >= size and modes <= one.modes]
            )
        return self._left_for[like]

    def _read_free(self) -> dict[tuple[str, Key | None], tuple[_Free, ...]]:
        """Return the volumes that nobody has, by class and by the claim that they are kept for."""
        found: dict[tuple[str, Key | None], dict[_Kind, int]] = {}
        for _, volume in sorted(self._cluster.volumes.items()):
            spec, size = volume.spec, _size(volume.spec.capacity)
            if size is not None and _is_free(volume):
                kept_for = (
                    Key(spec.claim_ref.namespace, spec.claim_ref.name) if spec.claim_ref else None
                )
                alike = found.setdefault((spec.storage_class_name, kept_for), {})
                kind = frozenset(spec.access_modes), self._reached(volume)
                alike[kind] = max(alike.get(kind, 0), size)
        return {
            key: tuple(_Free(*kind, size) for kind, size in alike.items())
            for key, alike in found.items()
        }

    def _reached(self, volume: PersistentVolume) -> Alternatives | None:
        """Return from where a volume can be reached; None is from everywhere."""
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return None
        return self._labels.of_selector(affinity.required) or self._labels.nowhere()


def claims_of(kin: Kin) -> tuple[Key, ...]:
    """Return the claims that pods name."""
    return tuple(dict.fromkeys(_named(kin)))


def is_exclusive(cluster: Cluster, claim: Key) -> bool:
    """Say whether only one node, or one pod, may use a claim at a time."""
    modes = _modes(cluster, claim)
    return _ONE_POD in modes or set(modes) == {_ONE_NODE}


def _named(kin: Kin) -> Iterator[Key]:
    for volume in kin.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield Key(kin.namespace, volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            yield Key(kin.namespace, f"{kin.own_name}-{volume.name}")


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


def _wrong(message: str) -> Bar:
    return Bar(Verdict.MISCONFIGURED, message, _WAKES_ON)


_FREE: Final = _Use()
