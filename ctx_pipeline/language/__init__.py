"""Terms and tokens of both languages."""
