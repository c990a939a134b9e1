"""Nodes as rows: resources, faults, taints and labels."""
