"""What would be if some tenants were gone: the stake of one claim.

Pods of one shape that only ask for room need so many seats, and those are counted. For all others
seats are what there must be at least; then the pods are placed on trial. What was placed on trial
stands while nobody comes back to the nodes that it needs.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from scheduler.core.chunks import Chunk, Progress
from scheduler.core.line import Block
from scheduler.core.model import NONE
from scheduler.core.place import Placer
from scheduler.core.seating import Seating
from scheduler.core.tenants import Member, Tenants
from scheduler.core.usage import Amounts

__all__ = ["Ask", "Gone", "Leave", "Try"]

_TRIALS: Final = 2**9  # of one claim


class Ask(NamedTuple):
    """What room is wanted for."""

    unit: int
    parts: Chunk
    progress: Progress
    wanted: dict[int, int]  # pods by shape
    seatings: dict[int, Seating]  # by shape
    is_counted: bool  # enough seats are enough
    is_unmoved: bool  # nobody else matters to the pods, but for the room


class Try(NamedTuple):
    """Who may be gone, as they stand in line."""

    line: Iterator[int]  # blocks
    number: int  # of them
    keeps_budgets: bool  # no budget lets more go than it may


class Leave(Protocol):
    """Who may be taken from, and what that leaves of what queues have."""

    def may_lose(self, queue: int, /) -> bool:
        """Say whether a block may be taken from a queue."""
        ...

    def take(self, block: Block, amounts: Amounts, /) -> None:
        """Take a block; *amounts* of it nobody had taken before."""
        ...

    def spare(self, block: Block, amounts: Amounts, /) -> None:
        """Give a block back; *amounts* of it nobody else takes."""
        ...

    def is_within(self) -> bool:
        """Say whether no bound of a queue is in the way any more."""
        ...

    def is_fair(self) -> bool:
        """Say whether it is fair to those who lost something."""
        ...


class Gone:
    """Those who are gone, by their ranks."""

    def __init__(
        self,
        ask: Ask,
        placer: Placer,
        tenants: Tenants,
        some: Try,
        leave: Leave,
        *,
        trusts: bool,
    ) -> None:
        """Rank *some* who may be gone as they stand in line.

        With *trusts* a placement stands while there is room for it, though another one might be
        made now; else each is made anew.
        """
        self._trusts: Final = trusts and ask.is_unmoved
        self.trials = 0
        self.is_cut = False
        self.blocks: Final[list[int]] = []  # by rank, as far as anybody asked
        self._ask: Final = ask
        self._placer: Final = placer
        self._tenants: Final = tenants
        self._disruptions: Final = tenants.disruptions
        self._is_limited: Final = some.keeps_budgets and tenants.disruptions.are_any
        self._disrupted: Final[Counter[int]] = Counter()  # of each budget
        self.refused_by: Final[set[int]] = set()  # budgets
        self._line: Final = some.line
        self._leave: Final = leave
        shapes = placer.ledger.snapshot.shapes
        self._shapes: Final = shapes
        self._room: Final[dict[int, list[int]]] = {}  # of nodes, as it would be
        self._gone: Final[dict[Member, int]] = {}  # how many blocks took it
        self._placed: dict[int, Counter[int]] = {}  # on trial, by node: how much of what
        self._doubts: Final[set[int]] = set()  # nodes of these where somebody came or went
        for seating in ask.seatings.values():
            seating.settle()

    def may_lose(self, candidate: int) -> bool:
        """Say whether one more may go."""
        block = self._block(candidate)
        if self._is_limited and self._passes(block):
            return False
        return self._leave.may_lose(self._tenants.blocks[block].queue)

    def take(self, candidate: int) -> None:
        """Have it gone."""
        block = self._block(candidate)
        found: list[Member] = []
        for member in self._tenants.members[block]:
            count = self._gone.get(member, 0)
            self._gone[member] = count + 1
            if not count:
                found.append(member)
        if self._is_limited:
            self._disrupted.update(self._disruptions.counts(it.pod for it in found))
        self._move(found, 1)
        self._leave.take(self._tenants.blocks[block], self._tenants.amounts(block, found))

    def spare(self, candidate: int) -> None:
        """Have it back."""
        block = self._block(candidate)
        found: list[Member] = []
        for member in self._tenants.members[block]:
            self._gone[member] -= 1
            if not self._gone[member]:
                del self._gone[member]
                found.append(member)
        if self._is_limited:
            self._disrupted.subtract(self._disruptions.counts(it.pod for it in found))
        self._move(found, -1)
        self._leave.spare(self._tenants.blocks[block], self._tenants.amounts(block, found))

    def has_room(self) -> bool:
        """Say whether there would be room for all that is asked."""
        ask = self._ask
        for shape, seating in ask.seatings.items():
            if seating.total < ask.wanted[shape]:
                return False
        return self._leave.is_within() and (ask.is_counted or self._stands() or self._fits())

    def is_fair(self) -> bool:
        """Say whether it would be fair to those who lost something."""
        return self._leave.is_fair()

    def _passes(self, block: int) -> bool:
        """Say whether more would go with a block than a budget lets, and note which one."""
        members = (it.pod for it in self._tenants.members[block] if it not in self._gone)
        more = self._disruptions.counts(members)
        passed = self._disruptions.passed(more + self._disrupted) if more else []
        self.refused_by.update(passed)
        return bool(passed)

    def beside(self) -> Chunk:
        """Return what has to find room as well: nothing."""
        return ()

    def _block(self, rank: int) -> int:
        while len(self.blocks) <= rank:
            self.blocks.append(next(self._line))
        return self.blocks[rank]

    def _move(self, members: list[Member], sign: int) -> None:
        nodes = set()
        for _, node, shape in members:
            if node == NONE:
                continue
            room = self._room.get(node)
            if room is None:
                room = self._room[node] = self._placer.ledger.room[node].tolist()
            for resource, amount in self._placer.ledger.asked(shape):
                room[resource] += sign * amount
            nodes.add(node)
        for node in nodes:
            for seating in self._ask.seatings.values():
                if seating.is_open[node]:
                    seating.have(node, self._room[node])
            if node in self._placed:
                self._doubts.add(node)

    def _stands(self) -> bool:
        """Say whether what was placed on trial would still have its room."""
        for node in [*self._doubts]:
            room = self._room[node]
            if any(room[r] < amount for r, amount in self._placed[node].items()):
                return False
            self._doubts.discard(node)
        return bool(self._placed) and self._trusts

    def _fits(self) -> bool:
        """Place all that is asked on trial."""
        if self.trials == _TRIALS:
            self.is_cut = True
            return False
        self.trials += 1
        ledger = self._placer.ledger
        checkpoint = ledger.checkpoint
        for member in self._gone:
            if member.node == NONE:
                continue
            ledger.evict(member.node, member.shape)
        found = self._placer.fits(self._ask.parts, self._ask.progress, self.beside())
        ledger.roll_back(checkpoint)
        if found is None:
            return False
        self._placed.clear()
        self._doubts.clear()
        for node, shape, count in found:
            placed = self._placed.setdefault(node, Counter())
            for resource, amount in ledger.asked(shape):
                placed[resource] += count * amount
        return True
