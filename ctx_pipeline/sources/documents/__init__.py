"""Adapters of what people write: documents, instructions, memories, skills, artifacts."""
