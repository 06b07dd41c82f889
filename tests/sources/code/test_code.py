from __future__ import annotations

import json
import sys

import pytest

from ctx_pipeline.contracts import FileCode, FileStatus, ItemKind
from ctx_pipeline.sources.code import code
from ctx_pipeline.sources.code.grammars import CODE_SUFFIXES

SHOP = '''\
"""Orders of the shop. 商店的订单。"""

from __future__ import annotations

import os

from shop.money import Amount

LIMIT = 100


# Held until paid.
@dataclass
class Order:
    """One order."""

    number: int

    def total(self, rate: float) -> Amount:
        """Sum with tax."""
        return Amount(self.number * rate)

    @property
    def 编号(self) -> int:
        return self.number


def load(path: str) -> Order:
    from shop import store

    return store.read(path)
'''


def write(root, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def shop(read, tmp_path):
    write(
        tmp_path,
        {
            "src/shop/__init__.py": "from shop.orders import Order\n",
            "src/shop/orders.py": SHOP,
            "src/shop/money.py": "class Amount: pass\n",
            "src/shop/store.py": "def read(path): ...\n",
            "tests/test_orders.py": "from shop import Order\n\ndef test_total(): assert Order\n",
        },
    )
    return read("code")


def by_id(batch) -> dict:
    return {item.item_id: item for item in batch.items}


def depends(batch, name: str) -> set[str]:
    return {
        target.removeprefix("code:src/") for target in by_id(batch)[f"code:src/{name}"].depends_on
    }


def test_a_file_gives_its_outline_and_its_symbols(shop):
    assert shop.errors == ()
    items = by_id(shop)
    file = items["code:src/src/shop/orders.py"]
    assert (file.kind, file.subject, file.authority) == (
        ItemKind.CODE,
        "file:src/shop/orders.py",
        60,
    )
    for line in (
        "language: python",
        "doc: Orders of the shop. 商店的订单。",
        "- class Order [12-25]",
        "  - def total(self, rate: float) -> Amount [19-21]",
        "LIMIT = 100",
    ):
        assert line in (file.content or "").split("\n")
    total = items["code:src/src/shop/orders.py::Order.total"]
    assert (total.subject, total.depends_on) == ("symbol:Order.total", (file.item_id,))
    assert (total.content or "").split("\n")[1:] == [
        "def total(self, rate: float) -> Amount:",
        '    """Sum with tax."""',
        "    return Amount(self.number * rate)",
    ]
    assert "code:src/src/shop/orders.py::Order.编号" in items


def test_lines_of_a_symbol_are_those_of_the_file_with_its_comments_and_decorators(shop):
    lines = SHOP.split("\n")
    for name, first, last in (
        ("Order", "# Held until paid.", "        return self.number"),
        ("Order.编号", "    @property", "        return self.number"),
        ("load", "def load(path: str) -> Order:", "    return store.read(path)"),
    ):
        locator = by_id(shop)[f"code:src/src/shop/orders.py::{name}"].provenance.locator
        assert locator.path == "src/shop/orders.py"
        assert (lines[locator.line_start - 1], lines[locator.line_end - 1]) == (first, last)


def test_a_class_shows_its_members_by_signature_alone(shop):
    text = by_id(shop)["code:src/src/shop/orders.py::Order"].content or ""
    assert "    def total(self, rate: float) -> Amount …" in text.split("\n")
    assert "    number: int" in text
    assert "rate)" not in text.replace("rate: float)", "")


def test_python_imports_become_edges_also_inside_functions_and_through_packages(shop):
    assert depends(shop, "src/shop/orders.py") == {
        "src/shop/money.py",
        "src/shop/store.py",
        "src/shop/__init__.py",
    }
    assert depends(shop, "tests/test_orders.py") == {"src/shop/__init__.py", "src/shop/orders.py"}


def test_a_covered_file_names_its_tests(shop):
    assert "tests: tests/test_orders.py" in (
        by_id(shop)["code:src/src/shop/orders.py"].content or ""
    ).split("\n")
    assert "tests:" not in (by_id(shop)["code:src/src/shop/money.py"].content or "")


@pytest.mark.parametrize(
    ("statement", "target"),
    [
        ("from . import b", "pkg/b.py"),
        ("from .b import x", "pkg/b.py"),
        ("from .. import top", "top.py"),
        ("from ..other.deep import y", "other/deep.py"),
        ("import pkg.b as q", "pkg/b.py"),
        ("from pkg import b", "pkg/b.py"),
        ("import other.deep", "other/deep.py"),
        ("from other import deep", "other/deep.py"),
        ("if True:\n    import beside", "pkg/beside.py"),
        ("from .b import *", "pkg/b.py"),
    ],
)
def test_each_form_of_a_python_import_is_resolved(read, tmp_path, statement, target):
    files = dict.fromkeys(
        ("pkg/__init__.py", "pkg/b.py", "pkg/beside.py", "top.py", "other/deep.py"), "x = 1\n"
    )
    write(tmp_path, {**files, "pkg/a.py": statement})
    assert target in depends(read("code"), "pkg/a.py")


def test_imports_that_leave_the_source_have_no_edge_and_are_named(read, tmp_path):
    write(tmp_path, {"a.py": "import os\nfrom ...... import x\nfrom numpy import array\n"})
    assert depends(read("code"), "a.py") == set()
    assert "imports: os, numpy" in (by_id(read("code"))["code:src/a.py"].content or "")


@pytest.mark.parametrize(
    ("statement", "target"),
    [
        ("import x from './b'", "app/b.ts"),
        ("import x from './b.js'", "app/b.ts"),
        ("export * from './part'", "app/part/index.tsx"),
        ("const x = require('../util')", "util.js"),
        ("const x = await import('./b')", "app/b.ts"),
        ("import type {X} from '@/deep/c'", "src/deep/c.ts"),
        ("import x from '#lib/c'", "lib/c.ts"),
        ("import x from '@acme/kit'", "packages/kit/src/index.ts"),
        ("import x from '@acme/kit/more'", "packages/kit/src/more.ts"),
    ],
)
def test_each_form_of_a_script_import_is_resolved(read, tmp_path, statement, target):
    sources = (
        "app/b.ts",
        "app/part/index.tsx",
        "util.js",
        "src/deep/c.ts",
        "lib/c.ts",
        "packages/kit/src/index.ts",
    )
    write(
        tmp_path,
        {
            **dict.fromkeys((*sources, "packages/kit/src/more.ts"), "export const y = 1\n"),
            "app/a.ts": statement,
            "tsconfig.json": (
                '{"extends": "./tsconfig.base", // one\n "compilerOptions": {"baseUrl": ".",},}'
            ),
            "tsconfig.base.json": json.dumps(
                {"compilerOptions": {"paths": {"@/*": ["./src/*"], "#lib/*": ["lib/*"]}}}
            ),
            "packages/kit/package.json": '{"name": "@acme/kit", "main": "dist/index.js"}',
        },
    )
    batch = read("code")
    assert depends(batch, "app/a.ts") == {target}
    assert {file.path: file.status for file in batch.files}["tsconfig.json"] is FileStatus.LOADED


OTHERS = {
    "go": (
        {
            "go.mod": "module acme.dev/shop\n",
            "money/amount.go": "package money\n",
            "money/amount_test.go": "package money\n",
        },
        "main.go",
        (
            'package main\nimport (\n "fmt"\n m "acme.dev/shop/money"\n)\nfunc '
            "(s *Shop[T]) Pay() error { return nil }\n"
        ),
        {"money/amount.go"},
        "Shop.Pay",
    ),
    "rust": (
        {"src/lib.rs": "mod shop;\n", "src/money.rs": "pub struct A;\n", "src/shop/cart.rs": ""},
        "src/shop/mod.rs",
        "mod cart;\nuse crate::money::{self, A};\nimpl Pay for Shop { fn pay(&self) {} }\n",
        {"src/money.rs"},
        "Shop.pay",
    ),
    "java": (
        {"a/src/dev/acme/Money.java": "package dev.acme; class Money {}\n"},
        "a/src/dev/acme/Shop.java",
        "package dev.acme;\nimport dev.acme.Money;\nclass Shop { enum E { A } void pay() {} }\n",
        {"a/src/dev/acme/Money.java"},
        "Shop.pay",
    ),
    "c": (
        {"include/money.h": "int x;\n"},
        "src/shop.c",
        '#include <stdio.h>\n#include "money.h"\nstatic int *pay(int a) { return 0; }\n',
        {"include/money.h"},
        "pay",
    ),
    "cpp": (
        {"src/money.hpp": "\n"},
        "src/shop.cpp",
        '#include "money.hpp"\nnamespace n { class Shop { int pay() const { return 1; } }; }\n',
        set(),
        "n.Shop.pay",
    ),
    "csharp": (
        {},
        "Shop.cs",
        "using System;\nnamespace N { class Shop { void Pay() {} } }\n",
        set(),
        "N.Shop.Pay",
    ),
    "ruby": (
        {"lib/money.rb": "X = 1\n"},
        "lib/shop.rb",
        "require_relative 'money'\nmodule M\n class Shop\n  def pay; end\n end\nend\n",
        {"lib/money.rb"},
        "M.Shop.pay",
    ),
    "php": (
        {"src/Money.php": "<?php\nclass Money {}\n"},
        "src/Shop.php",
        "<?php\nnamespace A;\nuse A\\B\\Money;\nclass Shop { function pay() {} }\n",
        {"src/Money.php"},
        "Shop.pay",
    ),
    "bash": (
        {"lib.sh": "x=1\n"},
        "run.sh",
        "source ./lib.sh\npay() { echo; }\n",
        {"lib.sh"},
        "pay",
    ),
    "sql": (
        {},
        "shop.sql",
        "-- 订单表\nCREATE TABLE shop.orders (id int);\n",
        set(),
        "shop.orders",
    ),
    "tsx": (
        {"money.ts": "export const x = 1\n"},
        "shop.tsx",
        "import {x} from './money'\nexport const Pay = () => <div>{x}</div>\n",
        {"money.ts"},
        "Pay",
    ),
    "javascript": (
        {},
        "shop.js",
        "class Shop { pay() {} }\nexports.pay = function () {}\n",
        set(),
        "Shop.pay",
    ),
}


@pytest.mark.parametrize("language", OTHERS)
def test_every_language_gives_symbols_and_what_its_imports_tell(read, tmp_path, language):
    others, name, text, targets, symbol = OTHERS[language]
    write(tmp_path, {**others, name: text})
    batch = read("code")
    assert batch.errors == ()
    assert f"language: {language}" in (by_id(batch)[f"code:src/{name}"].content or "")
    assert f"code:src/{name}::{symbol}" in by_id(batch)
    # An empty file is no item, but it may be imported.
    assert depends(batch, name) == targets


def test_a_go_test_depends_on_the_file_it_is_named_after(read, tmp_path):
    write(
        tmp_path,
        {"pay.go": "package p\nfunc Pay() {}\n", "pay_test.go": "package p\nfunc TestPay() {}\n"},
    )
    batch = read("code")
    assert depends(batch, "pay_test.go") == {"pay.go"}
    assert "tests: pay_test.go" in (by_id(batch)["code:src/pay.go"].content or "")


def test_a_name_given_twice_keeps_both(read, tmp_path):
    write(tmp_path, {"a.py": "def f(): return 1\ndef f(): return 2\n"})
    batch = read("code")
    assert {item.item_id for item in batch.items} == {
        "code:src/a.py",
        "code:src/a.py::f",
        "code:src/a.py::f#2",
    }
    assert {item.subject for item in batch.items} == {"file:a.py", "symbol:f"}


def test_a_long_symbol_is_cut_and_the_rest_is_named_by_its_lines(read, tmp_path):
    body = "\n".join(f"    value_{number} = '{'x' * 40}'" for number in range(300))
    write(tmp_path, {"a.py": f"def long():\n{body}\n"})
    text = by_id(read("code"))["code:src/a.py::long"].content or ""
    assert len(text) < code.MAX_SYMBOL_CHARS + 200
    shown = text.count("value_")
    assert f"[truncated: {301 - 1 - shown} more lines, {shown + 2}-301 of a.py]" in text


def test_a_file_with_more_symbols_than_the_outline_holds_says_so(read, tmp_path):
    write(tmp_path, {"a.py": "".join(f"def f{number}(): pass\n" for number in range(2_100))})
    batch = read("code")
    text = by_id(batch)["code:src/a.py"].content or ""
    assert "[truncated: 1,900 more symbols]" in text
    assert "[truncated: 100 symbols have no item of their own]" in text
    assert len(batch.items) == 2_001


def test_the_text_of_an_item_does_not_move_with_its_lines(read, tmp_path):
    write(tmp_path, {"a.py": SHOP})
    before = by_id(read("code"))["code:src/a.py::load"]
    write(tmp_path, {"a.py": f"import sys\n\n{SHOP}"})
    after = by_id(read("code"))["code:src/a.py::load"]
    assert after.version == before.version
    assert after.provenance.locator.line_start == (before.provenance.locator.line_start or 0) + 2


def test_broken_syntax_gives_what_can_be_read_and_says_so(read, tmp_path):
    write(tmp_path, {"a.py": "def good(): pass\n\ndef bad(:\n  ((\n\nclass Also:\n    x = 1\n"})
    batch = read("code")
    assert batch.errors == ()
    assert "code:src/a.py::good" in by_id(batch)
    assert "syntax errors: the outline may be incomplete" in (
        by_id(batch)["code:src/a.py"].content or ""
    )


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("node_modules/x/a.js", "var a\n", "vendored"),
        ("deep/vendor/a.go", "package a\n", "vendored"),
        ("a_pb2.py", "x = 1\n", "generated"),
        ("jquery.min.js", "var a\n", "generated"),
        ("gen.go", "// Code generated by tool. DO NOT EDIT.\npackage a\n", "generated"),
        ("gen.ts", "/* eslint-disable */\n// @generated by x\nexport {}\n", "generated"),
        ("gen.py", "# 此文件由工具自动生成\nx = 1\n", "generated"),
        ("packed.js", f"var a='{'x' * 20_000}'\n", "minified"),
        ("data.py", "x = 1\n" * 200_000, "above"),
        ("notes.md", "# a\n", "not code"),
        ("picture.png", "\x89PNG", "not code"),
    ],
)
def test_what_is_not_the_projects_own_text_is_skipped_with_the_reason(
    read, tmp_path, name, text, reason
):
    write(tmp_path, {name: text, "own.py": "x = 1\n"})
    batch = read("code")
    assert batch.errors == ()
    file = next(file for file in batch.files if file.path == name)
    assert file.status is FileStatus.SKIPPED
    assert reason in (file.reason or "")
    assert set(by_id(batch)) == {"code:src/own.py"}


def test_words_about_generated_code_do_not_skip_a_file(read, tmp_path):
    write(tmp_path, {"a.py": '"""Finds files whose head says that code was generated."""\nx = 1\n'})
    assert [file.status for file in read("code").files] == [FileStatus.LOADED]


def test_a_folder_of_many_foreign_files_is_one_entry_with_their_number(read, tmp_path):
    write(tmp_path, {f"node_modules/p{number}.js": "var a\n" for number in range(201)})
    files = read("code").files
    assert [(file.path, file.bytes) for file in files] == [("node_modules", 201 * 6)]
    assert "201 files" in (files[0].reason or "")


def test_gitignore_is_respected_in_a_work_tree_alone(read, tmp_path):
    write(
        tmp_path,
        {
            ".gitignore": "out/\n*.tmp.py\n!keep.tmp.py\n/only_top.py\n",
            "app/.gitignore": "local.py\n!kept/\n",
            "out/a.py": "x = 1\n",
            "out/.gitignore": "!a.py\n",
            "a.tmp.py": "x = 1\n",
            "keep.tmp.py": "x = 1\n",
            "only_top.py": "x = 1\n",
            "app/only_top.py": "x = 1\n",
            "app/local.py": "x = 1\n",
        },
    )
    assert len(read("code").items) == 6
    (tmp_path / ".git").mkdir()
    batch = read("code")
    assert {item.provenance.locator.path for item in batch.items} == {
        "keep.tmp.py",
        "app/only_top.py",
    }
    ignored = {file.path for file in batch.files if file.reason == "ignored by .gitignore"}
    assert ignored == {"out/a.py", "a.tmp.py", "only_top.py", "app/local.py"}
    assert {item.provenance.locator.path for item in read("code", "out").items} == {"out/a.py"}


def test_a_missing_grammar_is_an_error_that_names_the_extra(read, tmp_path, monkeypatch):
    from ctx_pipeline.sources.code import grammars as code_grammars

    write(tmp_path, {"a.go": "package a\n", "b.py": "x = 1\n"})
    monkeypatch.setitem(sys.modules, "tree_sitter_go", None)
    code_grammars.language_of.cache_clear()
    batch = read("code")
    code_grammars.language_of.cache_clear()
    assert [(error.path, error.code) for error in batch.errors] == [
        ("a.go", FileCode.UNSUPPORTED_TYPE)
    ]
    assert "ctx-pipeline[code]" in batch.errors[0].message
    assert set(by_id(batch)) == {"code:src/b.py"}


def test_a_missing_parser_is_an_error_of_each_file_that_names_the_extra(
    read, tmp_path, monkeypatch
):
    from ctx_pipeline.sources.code import grammars as code_grammars

    write(tmp_path, {"a.go": "package a\n", "b.py": "x = 1\n"})
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    code_grammars.language_of.cache_clear()
    batch = read("code")
    code_grammars.language_of.cache_clear()
    assert [(error.path, error.code) for error in batch.errors] == [
        ("a.go", FileCode.UNSUPPORTED_TYPE),
        ("b.py", FileCode.UNSUPPORTED_TYPE),
    ]
    assert all("ctx-pipeline[code]" in error.message for error in batch.errors)


HOSTILE = {
    "brackets": b"[" * 50_000,
    "bracket lines": b"[\n" * 5_000,
    "ifs": b"".join(b" " * depth + b"if x:\n" for depth in range(300)),
    "quotes": b"'''\"\"\"\n" * 500,
    "functions": b"def f(\n" * 500,
    "classes": b"class A { " * 3_000,
    "braces": b"namespace a {\n" * 500,
    "nul": b"a\0b = 1\n" * 100,
    "carriage": b"def f():\r  pass\r\nx = 1\r",
    "bom": b"\xef\xbb\xbfx = 1\n",
    "blanks": b"x = '" + b" " * 5_000 + b"'\n",
}


@pytest.mark.parametrize("label", HOSTILE)
def test_hostile_text_in_any_language_raises_nothing(read, tmp_path, label):
    for suffix in CODE_SUFFIXES:
        (tmp_path / f"f{suffix}").write_bytes(HOSTILE[label])
    batch = read("code")
    assert len(batch.files) == len(CODE_SUFFIXES)
    assert not any("\0" in (item.content or "") for item in batch.items)
    assert all(item.item_id.isprintable() for item in batch.items)


def test_reading_code_is_repeatable(read, tmp_path):
    write(tmp_path, {"a.py": SHOP, "b.ts": "export class A { b() {} }\n"})
    assert read("code") == read("code")
