"""Which JobSet Trainer builds from a TrainJob and its runtime."""
