"""Errors that come several at once."""

from trainer_kai.kube.groups import errors_if_all_are, errors_in_group

A, B, C = ValueError("a"), ValueError("b"), KeyError("c")


def test_leaves() -> None:
    """All of them, however deep, in order; one alone is itself."""
    group = ExceptionGroup("", [A, ExceptionGroup("", [ExceptionGroup("", [B]), C])])

    assert (errors_in_group(group), errors_in_group(A)) == ([A, B, C], [A])


def test_only() -> None:
    """All or nothing."""
    assert errors_if_all_are(ValueError, ExceptionGroup("", [A, B])) == [A, B]
    assert errors_if_all_are(ValueError, ExceptionGroup("", [A, C])) is None
    assert (errors_if_all_are(LookupError, C), errors_if_all_are(LookupError, A)) == ([C], None)
