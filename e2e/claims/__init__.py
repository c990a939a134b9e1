"""Devices by ResourceClaim on the real control plane, with simulated ResourceSlices."""
