"""A registry of metrics, empty or with one that is published and built."""

from testing.published_project import built, home, published

__all__ = ["built", "home", "published"]
