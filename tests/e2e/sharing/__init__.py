"""The check of shared GPUs on written histories; no program is started here."""
