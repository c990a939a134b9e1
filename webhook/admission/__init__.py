"""Reviews as they come and go: requests, responses, patches, managed fields."""
