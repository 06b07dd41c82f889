from __future__ import annotations

from ctx_pipeline.contracts import FileCode, ItemKind

TERMS = """
terms:
  - name: refund
    synonyms: [退款, chargeback]
    definition: "Money back: to the buyer"
    subject: term:refund
    valid_from: 2026-01-01
  - name: churn
    definition: Customers who left
"""


def test_terms_become_items(read, tmp_path):
    (tmp_path / "g.yaml").write_text(TERMS, encoding="utf-8")
    batch = read("glossary", "g.yaml")
    assert batch.errors == ()
    refund, churn = batch.items
    assert (refund.item_id, refund.kind, refund.subject) == (
        "glossary:src/refund",
        ItemKind.GLOSSARY,
        "term:refund",
    )
    assert (refund.content, refund.synonyms) == (
        "refund: Money back: to the buyer",
        ("退款", "chargeback"),
    )
    assert (churn.subject, churn.provenance.locator.line_start, churn.authority) == (
        "glossary:churn",
        8,
        95,
    )


def test_what_is_wrong_is_reported_with_its_line(read, tmp_path):
    text = (
        "terms:\n- name: a\n- {name: b, definition: x}\n- {name: b, "
        "definition: y}\n- {name: b, definition: x}\n"
    )
    (tmp_path / "g.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "h.yaml").write_text("words: []", encoding="utf-8")
    batch = read("glossary")
    assert [item.content for item in batch.items] == ["b: x"]
    assert [(error.code, error.path, error.line) for error in batch.errors] == [
        (FileCode.BAD_RECORD, "g.yaml", 2),
        (FileCode.DUPLICATE_ID, "g.yaml", 4),
        (FileCode.BAD_YAML, "h.yaml", 1),
    ]
