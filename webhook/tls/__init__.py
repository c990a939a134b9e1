"""The certificate that the webhook serves with: made, stored, rotated."""
