"""Pods as rows, and the classes of pods that are equal but for name, node and state."""
