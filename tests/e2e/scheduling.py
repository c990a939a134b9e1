"""The gang check on written histories; no program is started here."""
