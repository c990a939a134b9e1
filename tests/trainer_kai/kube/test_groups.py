"""Errors that come several at once."""

from trainer_kai.kube.groups import leaves, only

A, B, C = ValueError("a"), ValueError("b"), KeyError("c")


def test_leaves() -> None:
    """All of them, however deep, in order; one alone is itself."""
    group = ExceptionGroup("", [A, ExceptionGroup("", [ExceptionGroup("", [B]), C])])

    assert (leaves(group), leaves(A)) == ([A, B, C], [A])


def test_only() -> None:
    """All or nothing."""
    assert only(ValueError, ExceptionGroup("", [A, B])) == [A, B]
    assert only(ValueError, ExceptionGroup("", [A, C])) is None
    assert (only(LookupError, C), only(LookupError, A)) == ([C], None)
