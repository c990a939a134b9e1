"""What the scheduler decides on clusters written by hand: each YAML file here shows one rule."""
