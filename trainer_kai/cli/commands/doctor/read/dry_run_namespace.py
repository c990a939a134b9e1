"""The namespace of the dry runs: one that takes part and accepts new objects."""

from trainer_kai.cli.commands.doctor.checks.admission.dry_runs import namespace_selectors
from trainer_kai.cli.commands.doctor.checks.admission.webhooks import selects_namespace
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, listed
from trainer_kai.cli.commands.doctor.finding import Unread


def dry_run_namespace(facts: InstallationFacts, context: str) -> str:
    """Return a namespace that takes part, preferably that of the context; "" for none."""
    if isinstance(facts.namespaces, Unread) or isinstance(facts.configurations, Unread):
        return context
    selectors = namespace_selectors(facts)
    by_name = {it.name: it.labels for it in facts.namespaces if not it.deletion_timestamp}
    names = [context, *sorted(it for it in by_name if not it.startswith("kube-"))]
    candidates = (
        it
        for it in names
        if it in by_name and all(selects_namespace(one, by_name[it]) for one in selectors)
    )
    return next(candidates, "")


def namespace_fault(facts: InstallationFacts, name: str) -> str:
    """Return why dry runs are not possible in a named namespace; "" if they are."""
    if isinstance(facts.namespaces, Unread):
        dry_run = facts.jobset
        refusal = None if isinstance(dry_run, Unread) else dry_run.refusal
        is_gone = refusal is not None and f'namespaces "{name}" not found' in refusal.message
        return f"namespace {name} does not exist" if is_gone else ""
    by_namespace = {it.name: it for it in facts.namespaces}
    if name not in by_namespace:
        return f"namespace {name} does not exist; existing are {listed(sorted(by_namespace), 10)}"
    if by_namespace[name].deletion_timestamp:
        return f"namespace {name} is being deleted, and accepts no new objects"
    return ""
