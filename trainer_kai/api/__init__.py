"""The Kubernetes objects that we read: names, quantities and typed parts of objects.

Pure: nothing here talks to the API server or decides anything.
"""
