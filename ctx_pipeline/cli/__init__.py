"""The command line `ctx`: one file a group of commands."""
