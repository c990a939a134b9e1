"""Carries out what a plan decided for one PodGroup: volumes, reservations, nominations, binds."""
