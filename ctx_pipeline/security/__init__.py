"""Who may see what: the one visibility predicate."""
