"""The command line, the top layer: it may import every room, and no room imports it.

It shows what the other rooms decide; it never decides anything itself.
"""
