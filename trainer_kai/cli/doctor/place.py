"""Where TrainJobs are tried dry: in a namespace that takes part and takes something new."""

from trainer_kai.cli.doctor.facts import Facts, listed
from trainer_kai.cli.doctor.finding import Unread
from trainer_kai.cli.doctor.hooks import covers
from trainer_kai.cli.doctor.tried import reaching

__all__ = ["named_in_vain", "place_for"]


def place_for(facts: Facts, context: str) -> str:
    """Return a namespace that takes part: that of the context if it does; "" for none."""
    if isinstance(facts.namespaces, Unread) or isinstance(facts.configurations, Unread):
        return context
    selectors = reaching(facts)
    by_name = {it.name: it.labels for it in facts.namespaces if not it.deletion_timestamp}
    names = [context, *sorted(it for it in by_name if not it.startswith("kube-"))]
    taking = (
        it for it in names if it in by_name and all(covers(one, by_name[it]) for one in selectors)
    )
    return next(taking, "")


def named_in_vain(facts: Facts, name: str) -> str:
    """Say why nothing can be tried in a namespace that somebody named, or nothing."""
    if isinstance(facts.namespaces, Unread):
        trial = facts.jobset
        refusal = None if isinstance(trial, Unread) else trial.refusal
        is_gone = refusal is not None and f'namespaces "{name}" not found' in refusal.message
        return f"there is no namespace {name}" if is_gone else ""
    there = {it.name: it for it in facts.namespaces}
    if name not in there:
        return f"there is no namespace {name}; there are {listed(sorted(there), 10)}"
    if there[name].deletion_timestamp:
        return f"the namespace {name} is being deleted, and takes nothing new"
    return ""
