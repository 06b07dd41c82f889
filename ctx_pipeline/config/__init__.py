"""What a project is told: `ctx.toml`, variables and flags, model profiles, policies as files."""
