from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader, PdfWriter

from ctx_pipeline.contracts import FileCode, FileStatus, ItemKind
from ctx_pipeline.sources.formats import pdf as module
from ctx_pipeline.sources.formats.pdf import PdfProblem, read_pdf
from testing.examples import examples
from tests.sources.small_pdf import pdf

PLAIN = pdf(
    "Refunds are paid in 14 days.\nSecond line.", "退款在十四天内支付。", title="Refunds 退款"
)


def locked(password: str, owner: str | None = None) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(BytesIO(PLAIN)))
    writer.encrypt(password, owner, algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.fixture
def one(read, tmp_path):
    """Read one PDF as a document."""

    def run(content: bytes, name: str = "a.pdf", **settings):
        (tmp_path / name).write_bytes(content)
        return read("documents", name, **settings)

    return run


def test_each_page_gives_items_that_know_their_page(one):
    batch = one(PLAIN, groups=["hr"])
    assert batch.errors == ()
    first, second = batch.items
    assert [item.item_id for item in batch.items] == [
        "document:src/a.pdf#1",
        "document:src/a.pdf#2",
    ]
    assert (first.kind, first.title) == (ItemKind.DOCUMENT, "Refunds 退款 > page 1")
    assert first.content == "Refunds are paid in 14 days.\nSecond line."
    assert second.content == "退款在十四天内支付。"
    assert [item.provenance.locator.page for item in batch.items] == [1, 2]
    assert (first.provenance.locator.path, first.scope.groups) == ("a.pdf", ("hr",))
    assert first.provenance.source_version == second.provenance.source_version


@pytest.mark.parametrize("encoding", ["UniGB-UCS2-H", "GBK-EUC-H"])
def test_chinese_text_is_read_without_an_embedded_font(encoding):
    read = read_pdf(pdf("退款政策", encoding=encoding))
    assert [page.text for page in read.pages] == ["退款政策"]


def test_a_long_page_is_cut_and_no_item_spans_two(one):
    text = "\n".join("Sentence of the handbook, line after line." for _ in range(80))
    batch = one(pdf(text, "last page"))
    pages = [item.provenance.locator.page for item in batch.items]
    assert pages == sorted(pages)
    assert pages.count(1) > 1
    assert pages[-1] == 2
    assert batch.items[-1].content == "last page"


def test_a_file_without_title_is_known_by_its_name(one):
    assert one(pdf("x")).items[0].title == "a.pdf > page 1"


def test_pages_that_are_pictures_are_said_to_need_text_recognition(one):
    batch = one(pdf("x", contents=b"0 0 10 10 re f"))
    assert (batch.items, batch.errors) == ((), ())
    assert batch.files[0].status is FileStatus.SKIPPED
    assert "text recognition" in (batch.files[0].reason or "")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (locked("secret"), FileCode.ENCRYPTED),
        (locked("secret", "owner"), FileCode.ENCRYPTED),
        (b"", FileCode.BAD_PDF),
        (b"plain text", FileCode.BAD_PDF),
        (b"%PDF-1.4", FileCode.BAD_PDF),
        (b"%PDF-1.4\n" + b"junk " * 500, FileCode.BAD_PDF),
        (PLAIN[:300], FileCode.BAD_PDF),
        (
            PLAIN.replace(b"/Type /Pages", b"/Type /Nopes").replace(b"/Kids", b"/Sons"),
            FileCode.BAD_PDF,
        ),
        (
            b"%PDF-1.4\n1 0 obj\n" + b"[" * 100_000 + b"\nendobj\ntrailer << /Root 1 0 R >>",
            FileCode.BAD_PDF,
        ),
    ],
    ids=range(9),
)
def test_a_file_that_cannot_be_read_is_an_error(one, content, code):
    batch = one(content)
    assert batch.items == ()
    assert [error.code for error in batch.errors] == [code]
    assert batch.files[0].status is FileStatus.FAILED


def test_a_file_that_anybody_may_open_is_read_although_it_is_protected_against_changes(one):
    assert [item.content for item in one(locked("", "owner")).items][1] == "退款在十四天内支付。"


def test_a_page_with_too_much_drawn_is_an_error_and_the_others_are_read(one, monkeypatch):
    monkeypatch.setitem(module._LIMITS, "stream_parsing_work_maximum_count", 1_000)
    batch = one(pdf("x", "second", contents=b"BT /F1 12 Tf " + b"(a) Tj " * 2_000 + b"ET"))
    assert [item.content for item in batch.items] == ["second"]
    assert [(error.code, "page 1" in error.message) for error in batch.errors] == [
        (FileCode.BAD_PDF, True)
    ]
    assert batch.files[0].status is FileStatus.LOADED


def test_a_bomb_is_stopped(monkeypatch):
    monkeypatch.setitem(module._LIMITS, "zlib_maximum_output_length", 100_000)
    with pytest.raises(PdfProblem) as caught:
        read_pdf(pdf("x", contents=b" " * 5_000_000))
    assert caught.value.code is FileCode.BAD_PDF


def test_too_many_pages_and_bytes_are_refused(monkeypatch, one):
    monkeypatch.setattr(module, "MAX_PAGES", 2)
    assert len(one(pdf("a", "b")).items) == 2
    batch = one(pdf("a", "b", "c"))
    assert [(error.code, "3" in error.message) for error in batch.errors] == [
        (FileCode.TOO_LARGE, True)
    ]
    monkeypatch.setattr(module, "MAX_PDF_BYTES", 100)
    assert [error.code for error in one(PLAIN).errors] == [FileCode.TOO_LARGE]
    assert [error.code for error in one(PLAIN, max_file_bytes=99).errors] == [FileCode.TOO_LARGE]


def test_a_file_that_takes_too_long_is_left_within_a_page():
    ticks = iter(range(10_000))
    with pytest.raises(PdfProblem) as caught:
        read_pdf(
            pdf("\n".join("line" for _ in range(200))),
            max_seconds=50,
            now=lambda: float(next(ticks)),
        )
    assert caught.value.code is FileCode.TOO_LARGE
    assert next(ticks) < 100


@settings(max_examples=examples(60))
@given(cut=st.integers(0, len(PLAIN)), junk=st.binary(max_size=30), at=st.integers(0, len(PLAIN)))
def test_damage_gives_pages_or_a_problem(cut, junk, at):
    damaged = PLAIN[:at] + junk + PLAIN[at + len(junk) : max(at, cut)]
    try:
        outcome = read_pdf(damaged).pages[0].number
    except PdfProblem as problem:
        outcome = problem.code
    assert outcome in (1, FileCode.BAD_PDF, FileCode.ENCRYPTED, FileCode.TOO_LARGE)
