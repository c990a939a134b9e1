"""Whether an installation can work, by reads and dry runs: facts in, verdicts out.

`read` is what asks; the checks are given all that it found, and know neither clock nor cluster.
"""
