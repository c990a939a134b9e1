"""Fields nested thousands of levels deep, which the API server stores, blind no watch of ours."""

from typing import Any, Final

import pytest

from tests.support.cpu_time import assert_cpu_ratio, cpu_s
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.pod import Pod
from trainer_kai.kube.watch import read_object, read_page

# Any user may write the managedFields of an object of their own; the API server takes 9,000 levels.
_LEVELS: Final = 9_000
_DEEP: Final = b'{"f:a":' * _LEVELS + b"{}" + b"}" * _LEVELS


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


def test_twice_the_object_takes_twice_the_time() -> None:
    """Up to 1.4 MB in as many brackets as fit."""
    half, whole = (
        _alone(b"Pod", b"[" * _LEVELS + b"{}," * parts + b"0" + b"]" * _LEVELS)
        for parts in (225_000, 450_000)
    )
    assert isinstance(read_object(Pod, whole), Pod)
    assert_cpu_ratio(
        3,
        lambda: cpu_s(lambda: read_object(Pod, whole)),
        lambda: cpu_s(lambda: read_object(Pod, half)),
    )
