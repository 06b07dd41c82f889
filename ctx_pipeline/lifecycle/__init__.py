"""What happens to items after they were stored: retirement, sweeps, maintenance."""
