"""Sources to store to artifact: the library half of a build."""
