"""Small PDF files written by hand, so that the tests need no font and no
library that writes them.
"""

from __future__ import annotations

import zlib


def pdf(
    *pages: str,
    encoding: str = "UniGB-UCS2-H",
    title: str | None = None,
    contents: bytes | None = None,
) -> bytes:
    """Return a PDF with one page per text; `encoding` is the character map of its Chinese font.

    `contents` replaces what is drawn on the first page.
    """
    codec = {"UniGB-UCS2-H": "utf-16-be", "GBK-EUC-H": "gbk"}[encoding]
    kids = " ".join(f"{6 + 2 * number} 0 R" for number in range(len(pages)))
    name = "" if title is None else f"/Title <FEFF{title.encode('utf-16-be').hex()}>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        f"<< /Type /Font /Subtype /Type0 /BaseFont /STSong-Light /Encoding /{encoding}"
        f" /DescendantFonts [4 0 R] >>".encode(),
        b"<< /Type /Font /Subtype /CIDFontType0 /BaseFont /STSong-Light /DW 1000"
        b" /CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) /Supplement 0 >> >>",
        f"<< {name} >>".encode(),
    ]
    for number, text in enumerate(pages):
        lines = " ".join(f"<{line.encode(codec).hex()}> Tj 0 -16 Td" for line in text.split("\n"))
        drawn = (
            contents
            if contents is not None and number == 0
            else f"BT /F1 12 Tf 72 720 Td {lines} ET".encode()
        )
        packed = zlib.compress(drawn)
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {7 + 2 * number} 0 R"
            f" /Resources << /Font << /F1 3 0 R >> >> >>".encode(),
            f"<< /Length {len(packed)} /Filter /FlateDecode >>\nstream\n".encode()
            + packed
            + b"\nendstream",
        ]
    return _file(objects)


def _file(objects: list[bytes]) -> bytes:
    out = b"%PDF-1.4\n"
    offsets: list[int] = []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = b"".join(f"{offset:010d} 00000 n \n".encode() for offset in offsets)
    size = len(objects) + 1
    trailer = (
        f"trailer << /Size {size} /Root 1 0 R /Info 5 0 R >>\nstartxref\n{len(out)}\n%%EOF".encode()
    )
    return out + f"xref\n0 {size}\n0000000000 65535 f \n".encode() + table + trailer
