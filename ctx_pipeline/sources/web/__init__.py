"""Web pages, and the guarded fetch that gets them."""
