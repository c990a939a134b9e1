"""The only Kubernetes client, module for module; no API server is needed here."""
