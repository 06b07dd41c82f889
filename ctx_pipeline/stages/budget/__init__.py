"""Budget: what fits, and in which rendition."""
