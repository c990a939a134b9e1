"""What the core lets a site choose: scores, orders, quotas and victim rules.

Pure, one idea a file. A policy never changes what it is given and never relies on being listed
first.
"""
