"""What a tenant writes must cost others nothing but a refusal: one test a hole."""
