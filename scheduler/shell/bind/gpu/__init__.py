"""Shares of GPUs: reservation pods, and the labels and ConfigMaps of the pods that share."""
