"""The verbs of `trainer-kai queue`: a plan of writes as values first, then what carries it out.

`command` has the verbs, each in a module of its own; `carry` is the only one that writes.
"""
