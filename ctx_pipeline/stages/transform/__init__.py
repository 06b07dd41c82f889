"""Transform: how an item is shown."""
