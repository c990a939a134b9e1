"""Damaged objects of any system: a move of them, or faults, and no other error."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.support.size import seeds
from tests.trainer_kai.cli.commands.migrate.migrated import Obj, example
from trainer_kai.cli.commands.migrate import migration
from trainer_kai.cli.commands.migrate.plan_migration import plan_migration
from trainer_kai.cli.commands.migrate.workloads import CLUSTER
from trainer_kai.cli.input.documents import Document
from trainer_kai.errors import ConfigError

ODD: Final[list[Any]] = [
    *(None, "", 0, -1, 1.5, True, [], {}, "x" * 300, [None], {"a": None}, "\u001b[2J"),
    *(2**70, "1e400", "NaN", ["a"], {"spec": 1}, [1], {1: "x", "a": {}}),
]


@pytest.mark.parametrize("system", ["kai", "kueue", "volcano"])
def test_damaged_objects_are_read_or_refused(system: str) -> None:
    """Of each some fields are replaced or removed; what is read can be printed."""
    objects = example(system)
    read = 0
    for seed in seeds(150):
        randomly = random.Random(seed)
        damaged = copy.deepcopy(objects)
        for _ in range(randomly.randint(1, 3)):
            damage(randomly.choice(damaged), randomly)
        file = randomly.choice(("in.yaml", CLUSTER))
        try:
            found = plan_migration(system, [Document(file, it) for it in damaged])
        except ConfigError:
            continue
        read += 1
        assert all(it.isprintable() for it in migration.as_text(system, found, 80).splitlines())
        assert json.dumps(migration.as_json(system, found))
        migration.as_yaml(found)
    assert read > 0


def damage(obj: Obj, randomly: random.Random) -> None:
    parent, key = randomly.choice([*places(obj)])
    if randomly.random() < 0.1:
        del parent[key]
    else:
        parent[key] = copy.deepcopy(randomly.choice(ODD))


def places(value: Any, *, is_top: bool = True) -> Iterator[tuple[Any, Any]]:
    """Yield each value that can be replaced, as its parent and its key."""
    keys: Any = (
        value.keys()
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    for key in keys:
        if not (is_top and key in {"apiVersion", "kind"}):
            yield value, key
        yield from places(value[key], is_top=False)
