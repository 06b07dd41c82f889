"""What tests and benchmarks share: strategies, stand-ins and projects made of given items."""
