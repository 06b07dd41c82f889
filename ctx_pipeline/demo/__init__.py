"""The demo retailer: a believable context project on disk, made in seconds and the same on every
machine.
"""

from __future__ import annotations

from ctx_pipeline.demo.create import DEFAULT_ROWS, DEFAULT_SEED, DemoProject, create_demo

__all__ = ["DEFAULT_ROWS", "DEFAULT_SEED", "DemoProject", "create_demo"]
