"""Decides which PodGroups run where, and carries it out.

Four rooms, each importing only those after it: shell, state, policies, core. It never meets the
webhook. A fifth room, the agent, is a process of its own that shares nothing with these.
"""
