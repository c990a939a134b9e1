"""A second scheduler, written from docs/rules.md and nothing else.

It is slow and plain on purpose: lists, loops, exact fractions, everything computed anew each time.
Where it and the product differ, one of them or the rules are wrong. It must never import the
scheduler, nor anything of the product that decides.
"""
