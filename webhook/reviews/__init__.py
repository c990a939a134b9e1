"""Answers reviews: looks objects up, applies the rules, responds."""
