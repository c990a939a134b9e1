"""The cluster cache as one JSON list of objects that `trainer-kai simulate` reads.

Assumed binds and evictions are part of it: it is what the next plan would be made from.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Any, Final

from scheduler.state.inputs import Cluster
from scheduler.state.queues.access import access_review
from trainer_kai.api.decode import encode
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import ACCESS_REVIEWS

_BATCH: Final = 200  # objects: a few milliseconds


async def dump_cluster(cluster: Cluster) -> AsyncIterator[bytes]:
    """Yield a List of the cached objects in JSON, piece by piece."""
    kinds = [(resource, [*objects.values()]) for resource, objects in cluster.by_resource().items()]
    kinds.append((ACCESS_REVIEWS, [access_review(*it) for it in cluster.permits.items()]))
    yield b'{"apiVersion":"v1","kind":"List","items":['
    is_first = True
    for resource, objects in kinds:
        remaining = iter(objects)
        while batch := [*islice(remaining, _BATCH)]:
            yield (b"" if is_first else b",\n") + b",\n".join(_encoded_objects(resource, batch))
            is_first = False
            await asyncio.sleep(0)
    yield b"]}\n"


def _encoded_objects(resource: Resource[Any], objects: Iterable[Any]) -> Iterable[bytes]:
    head = f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}",'.encode()
    return (head + encode(it)[1:] for it in objects)
