"""Nodes that come and go with the pods that wait for them."""
