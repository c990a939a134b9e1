"""The certificate that the webhook serves with: made, kept, rotated."""
