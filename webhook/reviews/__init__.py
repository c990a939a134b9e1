"""Answers reviews: look up, apply the rules, respond."""
