"""Tests of the cluster library, module by module; no program of it is started here."""
