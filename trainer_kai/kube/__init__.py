"""The only Kubernetes client of the product.

A shell: it waits, retries and fails. It knows no scheduling queue, PodGroup or
reason, and it never decides what to write.
"""
