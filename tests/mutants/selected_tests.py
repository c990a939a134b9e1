"""Which tests run on the mutants of which folder, and how."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

# A folder is tested by its mirror below tests/; the scheduler's core also by what plans with it.
_REFERENCE: Final = "tests/reference"
_PLANS: Final = (
    "tests/scheduler/core",
    "tests/scheduler/policies",
    "tests/cases/test_cases.py",
    f"{_REFERENCE}/test_allocate.py",
    f"{_REFERENCE}/test_consolidation.py",
    f"{_REFERENCE}/test_nominated.py",
    f"{_REFERENCE}/test_reclaim_preempt.py",
)
TESTS: Final[Mapping[str, Sequence[str]]] = {
    "scheduler/core": _PLANS,
    "scheduler/policies": _PLANS,
}
_POLICY: Final = "tests/trainer_kai/policy"
DESELECTED: Final = (
    # these count instructions, and mutmut adds some to every call
    f"{_POLICY}/lint/test_node_index.py::test_a_node_that_says_the_same_again_costs_nothing",
    f"{_POLICY}/lint/test_budget.py::test_a_moment_for_each",
    f"{_POLICY}/expand/test_jobset.py::test_ports_are_not_compared_each_with_each",
    f"{_POLICY}/podgroups/test_grouping.py::test_as_many_as_are_planned_take_a_moment",
)
# The same examples for every mutant.
ENVIRONMENT: Final = {"CI": "1", "PYTHONHASHSEED": "0"}


def tests_of(modules: Iterable[str]) -> list[str]:
    """Return the tests of the folders of some modules, each once."""
    tests: dict[str, None] = {}
    for folder in dict.fromkeys(PurePosixPath(module).parent for module in modules):
        tests |= dict.fromkeys(_tests_of(folder))
    return list(tests)


def _tests_of(folder: PurePosixPath) -> Sequence[str]:
    """Return what is named for a folder or one above it, else the nearest mirror that exists."""
    around = (folder, *folder.parents)
    named = [TESTS[name] for name in map(str, around) if name in TESTS]
    mirrors = (f"tests/{it}" for it in around if Path("tests", it).is_dir())
    return named[0] if named else (next(mirrors),)
