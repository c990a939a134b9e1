"""What the doctor compares with is what the manifests say now."""

from tests.support.expected_installation import as_json, expected_installation
from trainer_kai.cli.commands.doctor.manifests.expected import PATH, expected_manifests


def test_it_is_current() -> None:
    """`make tables` would write what is there already."""
    assert as_json(expected_installation()) == PATH.read_text()


def test_it_is_of_the_scheduler_of_the_site() -> None:
    """By the same words that the README of the manifests has replaced."""
    found = expected_manifests("mine")
    names = {it.name for account in found.accounts for it in account.rights}
    conditions = [
        text
        for configuration in found.configurations
        for hook in configuration.hooks
        for text in hook.conditions.values()
    ]

    assert "mine" in names
    assert any("in ['', 'mine']" in text for text in conditions)
    assert "kai-scheduler" not in {*names, *"".join(conditions).split("'")}


def test_it_holds_what_a_person_would_name() -> None:
    """One of each kind, to see that nothing is read past."""
    found = expected_manifests()
    (scheduler,) = (it for it in found.accounts if it.name == "trainer-kai-scheduler")
    hooks = {it.name: it for configuration in found.configurations for it in configuration.hooks}

    assert found.runtime_field == "spec.podGroupPolicy.kaiScheduler.queue"
    assert hooks["pod.trainer-kai.dev"].path == "/mutate/pod"
    assert ("create", "pods", "binding", True) in {
        (it.verb, it.resource, it.subresource, it.everywhere) for it in scheduler.rights
    }
    assert ("patch", "leases", "", False) in {
        (it.verb, it.resource, it.subresource, it.everywhere) for it in scheduler.rights
    }
    assert len(found.definitions) == 3
