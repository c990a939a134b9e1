"""The actions of a plan, one a module: reclaim, preempt, consolidation, stale gangs."""
