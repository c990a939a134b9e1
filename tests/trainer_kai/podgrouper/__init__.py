"""The podgrouper, module for module; no API server is needed here."""
