"""AdmissionReviews: requests, responses, patches, managed fields."""
