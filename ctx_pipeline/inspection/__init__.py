"""What people look at: items, snapshots, tools, freshness."""
