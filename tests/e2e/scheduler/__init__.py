"""The witnesses of the scheduler, told histories; no program of the chain is started here."""
