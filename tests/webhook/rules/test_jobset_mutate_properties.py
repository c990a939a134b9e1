"""What holds for every JobSet, whatever is in it.

JobSets, TrainJobs and managedFields are drawn at random, nonsense included. The patch is applied as
the API server applies it, and what comes out is looked at.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.size import examples
from tests.webhook.objects import (
    BUNDLED,
    EXTERNAL,
    GANG,
    OWNER,
    QUEUE,
    UID,
    Obj,
    applied,
    managed,
    reviewed_jobset,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.names import FOLLOWS_TRAINJOB
from trainer_kai.policy.expand.jobset import CARRIED_ANNOTATIONS, CARRIED_LABELS
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.cache.admission_cache import TrainJobSummary
from webhook.rules.jobset_mutate import JobSetContext

KAI: Final = "kai-scheduler"
ADMITTED: Final = "trainer-kai.dev/admitted"
SKIP: Final = "kai.scheduler/skip-podgrouper"
TEMPLATE: Final = ("template", "spec", "template")
LABELS: Final = (QUEUE, *CARRIED_LABELS, "team/x~y")
ANNOTATIONS: Final = (
    ADMITTED,
    *CARRIED_ANNOTATIONS,
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "alpha.jobset.sigs.k8s.io/node-selector",
)
OURS: Final = {
    *(("metadata", "labels", name) for name in (QUEUE, *CARRIED_LABELS)),
    *(
        ("metadata", "annotations", name)
        for name in (ADMITTED, FOLLOWS_TRAINJOB, *CARRIED_ANNOTATIONS)
    ),
}

values: Final = st.sampled_from(["a", "b", "", "true", "false", "v1", "Not A Value", "ü"])
schedulers: Final = st.sampled_from([None, None, None, "", KAI, "default-scheduler"])
names: Final = st.sampled_from(["node", "launcher", "a", "b"])


def maps(keys: tuple[str, ...]) -> st.SearchStrategy[Mapping[str, str] | None]:
    return st.none() | st.dictionaries(st.sampled_from(keys), values, max_size=4)


@st.composite
def jobs(draw: st.DrawFn, name: str) -> Obj:
    pods: Obj = {"spec": {"containers": []}}
    scheduler = draw(schedulers)
    if scheduler is not None:
        pods["spec"]["schedulerName"] = scheduler
    if draw(st.booleans()):
        groups = ("scheduling.k8s.io/group-name", "kai.scheduler/batch-min-member")
        pods["metadata"] = {
            "labels": draw(maps((QUEUE, GANG, "team/x~y"))),
            "annotations": draw(maps(groups)) if draw(st.integers(0, 4)) == 0 else None,
        }
    statuses = st.sampled_from(["Ready", "Complete"])
    edge = st.builds(lambda before, status: {"name": before, "status": status}, names, statuses)
    return {
        "name": name,
        "replicas": draw(st.integers(0, 3)),
        "dependsOn": draw(st.lists(edge, max_size=2)),
        "template": {
            "metadata": {"annotations": draw(maps(ANNOTATIONS)) if draw(st.booleans()) else {}},
            "spec": {"parallelism": draw(st.integers(0, 3)), "template": pods},
        },
    }


@st.composite
def jobsets(draw: st.DrawFn) -> Obj:
    chosen = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    whole: Obj = {
        "metadata": {"name": "job", "namespace": "team", "ownerReferences": [OWNER]},
        "spec": {"replicatedJobs": [draw(jobs(name)) for name in chosen]},
    }
    for part, keys in (("labels", LABELS), ("annotations", ANNOTATIONS)):
        if draw(st.booleans()):
            whole["metadata"][part] = draw(maps(keys))
    if draw(st.booleans()):
        whole["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    if draw(st.booleans()):
        for it in whole["spec"]["replicatedJobs"]:  # what a manager applied has no nulls
            it["template"]["spec"]["template"].setdefault("metadata", {})
        whole = managed(whole)
    return whole


@st.composite
def jobset_contexts(draw: st.DrawFn) -> JobSetContext:
    labels = draw(maps((QUEUE, *CARRIED_LABELS))) or {}
    annotations = draw(maps(CARRIED_ANNOTATIONS)) or {}
    trainjob = TrainJobSummary(UID, labels, annotations, Key("", "torch"))
    return JobSetContext(
        trainjob if draw(st.integers(0, 4)) else None,
        draw(st.sampled_from(["", "", "r"])),
        draw(st.sampled_from([{}, {QUEUE: "n"}])),
    )


rules: Final = st.sampled_from([BUNDLED, EXTERNAL])
many: Final = settings(max_examples=examples(40))


@many
@given(jobsets(), jobset_contexts(), rules)
def test_made_twice_is_made_once(obj: Obj, context: JobSetContext, rules: GroupingRules) -> None:
    """A patched JobSet needs no patch, and is not refused."""
    first = reviewed_jobset(obj, context, rules)
    patched = applied(obj, first)

    second = reviewed_jobset(patched, context, rules)

    assert second.operations == ()
    if first.denial is None:
        assert second.denial is None


@many
@given(jobsets(), jobset_contexts(), rules)
def test_nothing_else_is_touched(obj: Obj, context: JobSetContext, rules: GroupingRules) -> None:
    """Only the paths that are listed; scheduler name and carried metadata are only filled in."""
    patched = applied(obj, reviewed_jobset(obj, context, rules))

    for path, before, after in differences(obj, patched):
        if path[-1] == "schedulerName":
            assert (path[0], path[3:6], before or None, after) == ("spec", TEMPLATE, None, KAI)
        elif path[0] == "spec":
            assert path[3:8] == (*TEMPLATE, "metadata", "labels")
            assert path[8] in {QUEUE, GANG}
        else:
            assert path in OURS
            assert before is None or path[-1] in {QUEUE, ADMITTED}


@many
@given(jobsets(), jobset_contexts(), jobset_contexts(), rules, st.booleans())
def test_updated_twice_is_updated_once(
    obj: Obj, context: JobSetContext, later: JobSetContext, rules: GroupingRules, lost: bool
) -> None:
    """While it is suspended nothing but labels and our annotations changes, and it settles."""
    old = applied(obj, reviewed_jobset(obj, context, rules))
    old["spec"]["suspend"] = True
    new = copy.deepcopy(old)
    if lost:
        (new["metadata"].get("annotations") or {}).pop(ADMITTED, None)

    answer = reviewed_jobset(new, later, rules, old)
    patched = applied(new, answer)

    assert answer.denial is None
    assert reviewed_jobset(patched, later, rules, old).operations == ()
    for path, _, _ in differences(new, patched):
        assert path[-1] != "schedulerName"
        if path[0] == "spec":
            assert path[3:8] == (*TEMPLATE, "metadata", "labels")
            assert path[8] in {QUEUE, GANG}
        else:
            assert path in OURS


@many
@given(jobsets(), jobset_contexts(), rules)
def test_a_gang_is_on_our_pods_only(obj: Obj, context: JobSetContext, rules: GroupingRules) -> None:
    """A marked template has our scheduler's name and a queue, and its JobSet is admitted."""
    answer = reviewed_jobset(obj, context, rules)
    patched = applied(obj, answer)
    if not answer.operations:
        return
    marks = patched["metadata"].get("annotations") or {}
    if ADMITTED not in marks:  # sent with a JobSet that is not ours, which loses nothing else
        assert [path[-1] for path, _, _ in differences(obj, patched)] == [ADMITTED]
        return

    assert marks[ADMITTED] == "v1"
    assert patched["metadata"]["labels"][QUEUE]
    for it in patched["spec"]["replicatedJobs"]:
        pods = it["template"]["spec"]["template"]
        labels = (pods.get("metadata") or {}).get("labels") or {}
        if pods["spec"]["schedulerName"] == KAI:
            assert labels[QUEUE]
        else:
            assert GANG not in labels


def differences(
    before: Any, after: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Yield each leaf that differs: where, what was there, what is; a map is its members."""
    if isinstance(before, dict | None) and isinstance(after, dict | None):
        one, other = before or {}, after or {}
        for name in one.keys() | other.keys():
            yield from differences(one.get(name), other.get(name), (*path, name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (left, right) in enumerate(zip(before, after, strict=True)):
            yield from differences(left, right, (*path, number))
    elif before != after:
        yield path, before, after
