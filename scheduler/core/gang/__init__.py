"""Gangs: which pods the next attempt places, and which are evicted together."""
