"""The command line, module for module; no cluster is needed here."""
