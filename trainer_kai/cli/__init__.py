"""The command line, the top layer: it may import all other packages, and none imports it.

It shows what the other packages decide, and decides nothing itself.
"""
