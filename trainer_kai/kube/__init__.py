"""The only Kubernetes client of the product.

A shell: it waits, retries and fails. It knows no queue, unit or verdict, and it never decides
what to write.
"""
