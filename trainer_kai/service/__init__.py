"""What every process needs beside the client: settings, log, metrics, health, clock."""
