"""Checks of the installation: processes, their permissions and settings."""
