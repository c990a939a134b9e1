"""What every process is built from: its tasks, its event loop, its client, Lease and recorder."""
