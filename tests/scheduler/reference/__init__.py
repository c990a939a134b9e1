"""The second scheduler of `tests/support/reference`: that it can be trusted, and that we agree."""
