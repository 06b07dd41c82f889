"""What a build left unread is told by source and reason."""

from __future__ import annotations

from ctx_pipeline.cli.skipped import skipped_files
from ctx_pipeline.cli.views import Words
from ctx_pipeline.contracts import BuildReport, FileStatus, SourceFile, SourceReport


def test_skipped_files_are_told_once_for_each_reason():
    reason = "not a DuckDB, Parquet or CSV file"
    files = tuple(
        SourceFile(path=f"wh/q{n}.sql", status=FileStatus.SKIPPED, reason=reason) for n in range(7)
    )
    loaded = SourceFile(path="wh/订单.csv", status=FileStatus.LOADED, items=1)
    source = SourceReport(
        name="wh", kind="schema_metadata", items=1, added=1, reused=0, retired=0,
        files=(*files, loaded), errors=(),
    )  # fmt: skip
    report = BuildReport(
        items=1, embedded=1, reused=0, retired=0, errors=(), artifact=None, sources=(source,)
    )
    (block,) = skipped_files(report)
    assert isinstance(block, Words)
    assert block.text.startswith("Skipped: 7 files\n  wh: wh/q0.sql, wh/q1.sql")
    assert reason in block.text
    assert "订单" not in block.text
    assert skipped_files(report.model_copy(update={"sources": ()})) == []
