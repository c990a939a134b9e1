"""A tenant with the role `edit` in one namespace, on the real chain, against two other teams."""
