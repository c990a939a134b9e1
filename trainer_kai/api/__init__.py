"""How we read Kubernetes objects: names, quantities and typed parts of objects.

Pure. It never talks to the API server and never decides anything. This module imports nothing, so
that who needs one kind does not pay for all: import `trainer_kai.api.pod`, not the whole.
"""
