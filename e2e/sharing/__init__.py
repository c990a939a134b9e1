"""Tests of GPU sharing: reservation pods, ConfigMaps and labels, and what happens if one fails."""
