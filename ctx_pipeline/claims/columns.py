"""What texts and schema items say of columns: type, whether it may be null, primary key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

Found = tuple[str, str, str]
"""Attribute, value, subject."""

MAX_COLUMNS: Final = 40
_FAMILIES: Final = {
    "text": "varchar char character text string nvarchar varying 字符串 文本",
    "integer": "int integer bigint smallint tinyint hugeint int64 int32 long 整数 整型",
    "float": "float double real float64 float32 浮点 浮点数",
    "decimal": "decimal numeric",
    "timestamp": "timestamp timestamptz datetime 时间戳",
    "date": "date 日期",
    "boolean": "bool boolean 布尔",
    "json": "json jsonb",
    "uuid": "uuid",
    "bytes": "blob bytea binary",
}
_FAMILY: Final = {name: family for family, names in _FAMILIES.items() for name in names.split()}
_TYPE_NAME = "|".join(sorted(map(re.escape, _FAMILY), key=len, reverse=True))
_TYPE = rf"(?P<type>{_TYPE_NAME})(?:\s?\((?P<size>\d+(?:\s?,\s?\d+)?)\))?(?![a-z_])"
_WRITTEN_TYPE = re.compile(rf"^{_TYPE}")
_TYPED = re.compile(
    rf"(?:\btype\b|\bis\b|\bas\b|\bholds?\b|\bstores?\b|类型|是|为|存的?是|:|=)[\s:=]*"
    rf"(?:(?:an?|the|of|type|is|now|stored|as|是|为)\s*)*{_TYPE}"
)
_NAME = r"[a-z_][a-z0-9_]*"
_COLUMN = re.compile(
    # orders.amount
    rf"(?P<dotted>{_NAME}(?:\.{_NAME})+)"
    # "column amount of the table orders"
    rf"|(?:column|field)\s+(?P<c1>{_NAME})\s+(?:of|in|on)\s+(?:the\s+)?(?:table\s+)?(?P<t1>{_NAME})"
    # "amount column of orders"
    rf"|(?P<c2>{_NAME})\s+(?:column|field)\s+(?:of|in|on)\s+(?:the\s+)?(?:table\s+)?(?P<t2>{_NAME})"
    # orders 表的 amount 列
    rf"|(?P<t3>{_NAME})\s?表(?:中|里)?的?\s?(?P<c3>{_NAME})\s?(?:列|字段)?"
    # 表 orders 的字段 amount
    rf"|表\s?(?P<t4>{_NAME})\s?(?:中|里)?的?\s?(?:列|字段)?\s?(?P<c4>{_NAME})"
)
_COLUMN_PARTS: Final = (".", "column", "field", "表")
"""One of these stands in whatever `_COLUMN` finds."""
_NOT_NULL = re.compile(
    r"\b(?:is not|isn't|not|never|cannot be|can't be|must not be|can not be|may not be)"
    r" null(?:able)?\b"
    r"|\bnon-?null(?:able)?\b"
    r"|\bis (?:required|mandatory)\b"
    r"|不能为空|不可为空|不得为空|不允许为空|非空|必填"
)
_NULL = re.compile(
    r"\bnullable\b"
    r"|\b(?:can|may|could) be (?:null|empty)\b"
    r"|\ballows? nulls?\b"
    r"|\bis optional\b"
    r"|可以为空|可为空|允许为空|可空"
)
_THE_TABLE, _THE_COLUMN = r"(?:the )?(?:table )?", r"(?:the )?(?:column )?"
_KEY = re.compile(
    # "the primary key of orders is order_id"
    rf"\bprimary key (?:of|for|in) {_THE_TABLE}(?P<t1>{_NAME})(?: table)?"
    rf" is {_THE_COLUMN}(?P<c1>{_NAME}(?:, {_NAME})*)"
    # "orders has order_id as its primary key"
    rf"|\b(?:table )?(?P<t2>{_NAME})(?: table)? (?:has|uses) {_THE_COLUMN}(?P<c2>{_NAME})"
    r" as (?:its |the )?primary key"
    # orders 表的主键是 order_id
    rf"|(?P<t3>{_NAME})\s?表?的?主键(?:是|为)\s?(?P<c3>{_NAME})"
    # "orders.order_id is the primary key"
    rf"|(?P<t4>{_NAME})\.(?P<c4>{_NAME}) is the primary key"
)
_LISTED = re.compile(rf"^- (?P<name>{_NAME}) (?P<rest>\S.*)$", re.MULTILINE)


def schema_item_claims(text: str) -> Iterator[Found]:
    """Yield what the item of a table or a column says, as `sql_schema` writes it; other schema
    items say nothing.
    """
    head, _, rest = text.partition("\n")
    kind, _, name = head.partition(": ")
    if kind == "column":
        written = re.search(r"^type: (.+)$", rest, re.MULTILINE)
        if written:
            yield from _column(name, written[1])
    elif kind in ("table", "view"):
        key = re.search(r"^primary key: (.+)$", rest, re.MULTILINE)
        if key:
            yield "primary_key", key[1].strip(), f"schema:{name}"
        for match in list(_LISTED.finditer(rest))[:MAX_COLUMNS]:
            yield from _column(f"{name}.{match['name']}", match["rest"].partition(" -- ")[0])


def _column(name: str, written: str) -> Iterator[Found]:
    about = f"schema:{name}"
    found = _WRITTEN_TYPE.match(written)
    if found:
        yield from _typed(found, about)
    yield "nullable", "no" if "not null" in written else "yes", about


def _typed(found: re.Match[str], about: str) -> Iterator[Found]:
    yield "type", _FAMILY[found["type"]], about
    if found["size"]:
        yield "type_size", "".join(found["size"].split()), about


def schema_text_claims(text: str) -> Iterator[Found]:
    """Yield what a clause says of a column that it names with its table."""
    # Looking for what a pattern cannot do without is much cheaper than the pattern.
    key = _KEY.search(text) if "primary key" in text or "主键" in text else None
    if key:
        number = next(number for number in "1234" if key[f"t{number}"])
        yield "primary_key", key[f"c{number}"], f"schema:{key[f't{number}']}"
        return
    column = _COLUMN.search(text) if any(part in text for part in _COLUMN_PARTS) else None
    if column is None:
        return
    rest = text[: column.start()] + " " + text[column.end() :]
    about = f"schema:{_column_name(column)}"
    found = _TYPED.search(rest)
    if found:
        yield from _typed(found, about)
    if _NOT_NULL.search(rest):
        yield "nullable", "no", about
    elif _NULL.search(rest):
        yield "nullable", "yes", about


def _column_name(column: re.Match[str]) -> str:
    if column["dotted"]:
        return column["dotted"].removeprefix("main.")
    number = next(number for number in "1234" if column[f"t{number}"])
    return f"{column[f't{number}']}.{column[f'c{number}']}"
