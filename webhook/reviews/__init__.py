"""What answers a review: look up, apply the rules, answer."""
