"""What tests share. No test lives here, and the product never imports it."""
