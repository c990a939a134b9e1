"""What a pod requests, how much its spec may contain, and why a Job could not create it."""
