"""How we read Kubernetes objects: names, quantities and typed parts of objects.

Pure. It never talks to the API server and never decides anything.
"""
