"""A simulation of each case decides what the rules decide by hand."""

from collections.abc import Iterator

from tests.cases.case_files import SchedulerCase, check_all, faults, options_of
from trainer_kai.cli.commands.simulate.simulation import prepare, simulate
from trainer_kai.cli.input.documents import Document


def test_the_rules_hold() -> None:
    """Every case is answered as it should be."""
    check_all(lambda case: faults(case, simulate(case.objects, options_of(case))))


def test_the_order_of_objects_does_not_matter() -> None:
    """Objects that are given backwards are the same cluster, in the same order."""
    check_all(order_faults)


def order_faults(case: SchedulerCase) -> Iterator[str]:
    """Say so if a simulation begins with something else when the objects are given backwards."""
    written, backwards = (
        prepare([Document("input", dict(it)) for it in case.objects[::step]], options_of(case))
        for step in (1, -1)
    )
    for what in ("cluster", "state_options", "notes"):
        if repr(getattr(written, what)) != repr(getattr(backwards, what)):
            yield f"{what} depends on the order of the objects"
