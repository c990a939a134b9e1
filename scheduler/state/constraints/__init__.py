"""What keeps pods near or away: affinity, host ports, volumes, disruption budgets, bounds."""
