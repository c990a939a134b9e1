"""Fields nested thousands of levels deep, which the API server stores, blind no watch of ours."""

import time
from typing import Any, Final

import pytest

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.pod import Pod
from trainer_kai.kube.watch.decode import read_object, read_page

# Any user may write the managedFields of an object of their own; the API server takes 9,000 levels.
_LEVELS: Final = 9_000
_DEEP: Final = b'{"f:a":' * _LEVELS + b"{}" + b"}" * _LEVELS
_MAX_S: Final = 0.3  # of CPU for the largest object that the API server stores


def _item(name: str, nested: bytes = b"{}") -> bytes:
    managed = b'{"manager":"\\"[{","fieldsType":"FieldsV1","fieldsV1":%b}' % nested
    meta = b'{"name":"%b","namespace":"t","uid":"u","resourceVersion":"7","managedFields":[%b]}'
    return (
        b'{"metadata":%b,"spec":{"nodeName":"n0","suspend":true},"status":{"phase":"Running"}}'
        % (meta % (name.encode(), managed))
    )


def _alone(kind: bytes, nested: bytes) -> bytes:
    return b'{"kind":"%b","apiVersion":"v1",%b' % (kind, _item("tenant", nested)[1:])


def _page(*items: bytes) -> bytes:
    return b'{"kind":"List","metadata":{"resourceVersion":"9"},"items":[%b]}' % b",".join(items)


def test_a_pod_is_seen_on_its_node() -> None:
    """It takes room there, so that nothing is bound to what it has."""
    pod = read_object(Pod, _alone(b"Pod", _DEEP))
    assert isinstance(pod, Pod)
    assert (pod.metadata.name, pod.spec.node_name) == ("tenant", "n0")


def test_a_jobset_is_read() -> None:
    """Its field counts as in any other JobSet."""
    jobset = read_object(JobSet, _alone(b"JobSet", _DEEP))
    assert isinstance(jobset, JobSet)
    assert jobset.spec.suspend


@pytest.mark.parametrize("struct", [Pod, JobSet])
def test_the_other_objects_of_a_page_are_read(struct: type[Any]) -> None:
    """A list with such an object has all the others."""
    page = read_page(struct, _page(_item("red"), _item("tenant", _DEEP), _item("blue")))
    assert [it.metadata.name for it in page.items] == ["red", "tenant", "blue"]
    assert all(isinstance(it, struct) for it in page.items)
    assert page.metadata.resource_version == "9"


def test_the_largest_object_takes_no_longer_than_a_moment() -> None:
    """1.4 MB in as many brackets as fit."""
    wide = b"[" * _LEVELS + b"{}," * 450_000 + b"0" + b"]" * _LEVELS
    began = time.process_time()
    assert isinstance(read_object(Pod, _alone(b"Pod", wide)), Pod)
    assert time.process_time() - began < _MAX_S
