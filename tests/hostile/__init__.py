"""A hostile tenant costs other tenants nothing but a refusal: one test for each attack."""
