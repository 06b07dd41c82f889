"""Tools as context: one form for every dialect a tool is described in."""
