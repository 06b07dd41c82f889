"""Tables: files of them and databases."""
