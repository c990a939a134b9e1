"""The chain as a library, module for module; no program of it is started here."""
