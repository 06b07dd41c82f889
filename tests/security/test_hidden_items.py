"""What a viewer may not see changes no byte of a pack: not by its words, its names, its claims or
its number.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ctx_pipeline.contracts import (
    ContextItem,
    ContextRequest,
    ItemKind,
    Message,
    Rendition,
    Sensitivity,
    Task,
)
from ctx_pipeline.language.tokens import count_tokens
from testing.artifacts import (
    ANA,
    NOW,
    append_overlay,
    build_index,
    make_item,
    make_project,
    open_project,
    overlay,
)
from testing.examples import examples

generated = settings(
    max_examples=examples(12),
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SENTENCES = (
    "The refund window of goods is 14 days.",
    "The refund window of goods is 30 days.",
    "Refunds are paid by card, orders are shipped by parcel.",
    "商品的退款期限为14天。",
    "商品的退款期限为30天。",
    "订单退款需要 3 个工作日到账，区域仓库发货。",
    "GMV by region excludes refunds and cancelled orders.",
    "Returns are accepted at every store of the region.",
)
NAMES = ("refund window", "退款期限", "GMV", "gross value", "return rate", "退货率", "region")
TASKS = (
    "How long is the refund window of goods?",
    "商品的退款期限是多少天？",
    "GMV by region without refunds",
    "list orders",
)
PLACES: dict[str, dict[str, Any]] = {
    "other group": {"groups": ("finance",)},
    "other tenant": {"tenant": "globex"},
    "more sensitive": {"sensitivity": Sensitivity.RESTRICTED},
    "nobody": {"groups": ()},
}
WITHDRAWALS = ("quarantined", "retired", "forgotten", "revoked")
sentences = st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=4).map(" ".join)


@st.composite
def an_item(draw: st.DrawFn, name: str, **scope: Any) -> ContextItem:
    """An item of any kind that shares words, names, subjects and claims with others."""
    text = draw(sentences)
    authority = draw(st.sampled_from((40, 60, 90)))
    match draw(st.sampled_from(("document", "memory", "term", "metric", "tool", "table", "need"))):
        case "memory":
            subject = draw(st.sampled_from((None, "policy:refund-window", "metric:gmv")))
            return make_item(
                name, text, kind=ItemKind.MEMORY, subject=subject, authority=authority, **scope
            )
        case "term":
            title, other = draw(st.permutations(NAMES))[:2]
            return make_item(
                name,
                text,
                kind=ItemKind.GLOSSARY,
                title=title,
                synonyms=(other,),
                authority=authority,
                **scope,
            )
        case "metric":
            subject = draw(st.sampled_from(("metric:gmv", "metric:return-rate")))
            return make_item(
                name, f"{name}: {text}", kind=ItemKind.METRIC, title=name, subject=subject, **scope
            )
        case "tool":
            tool = draw(st.sampled_from(("list_orders", "refund")))
            content = {
                "name": tool,
                "description": text,
                "input_schema": {"type": "object", "properties": {}},
            }
            return make_item(
                name, json.dumps(content), kind=ItemKind.TOOL, title=tool,
                source=draw(st.sampled_from(("a", "b"))),
                **scope,
            )  # fmt: skip
        case "table":
            table = draw(st.sampled_from(("orders", "shop.orders", "refunds")))
            return make_item(
                name, text, kind=ItemKind.SCHEMA, title=table, subject=f"schema:{table}",
                source=draw(st.sampled_from(("a", "b"))), **scope,
            )  # fmt: skip
        case "need":
            needs = tuple(
                f"{kind}:handbook/s{n}"
                for kind in ("document", "metric", "memory")
                for n in range(3)
            )
            return make_item(name, text, depends_on=needs, authority=authority, **scope)
        case _:
            return make_item(
                name,
                text,
                title=draw(st.sampled_from((name, *NAMES))),
                authority=authority,
                **scope,
            )


@st.composite
def worlds(
    draw: st.DrawFn,
) -> tuple[list[ContextItem], list[ContextItem], list[tuple[str, ContextItem]]]:
    """What is shown, what is hidden, and what has been withdrawn, each with how."""
    shown = [draw(an_item(f"s{n}")) for n in range(draw(st.integers(1, 7)))]
    places = st.sampled_from(sorted(PLACES))
    # Some ids come before those of what is shown, some after, some between.
    names = st.sampled_from(("a", "s0x", "s1x", "z"))
    hidden = [
        draw(an_item(f"{draw(names)}{n}", **PLACES[draw(places)]))
        for n in range(draw(st.integers(1, 9)))
    ]
    withdrawn = [
        (draw(st.sampled_from(WITHDRAWALS)), draw(an_item(f"{draw(names)}w{n}")))
        for n in range(draw(st.integers(0, 5)))
    ]
    return shown, hidden, withdrawn


def packs(home: Path, shown: Sequence[ContextItem]) -> list[str]:
    """Every byte of some packs, and what the trace says of the items that are shown, without what
    names the index.
    """
    ids = {item.item_id for item in shown}
    calls = ({"function": {"name": "list_orders"}}, {"function": {"name": "a__list_orders"}})
    found: list[str] = []
    with open_project(home) as project:
        for text in TASKS:
            called = Message(role="assistant", content="ok", tool_calls=calls)
            for messages in ((), (called,)):
                request = ContextRequest(
                    task=Task(text=text), identity=ANA, messages=messages, run_id="run"
                )
                pack = project.assemble(request, at=NOW, durable=True)
                whole = pack.model_dump(
                    mode="json", exclude={"pack_id", "snapshot_id", "index_version", "denied"}
                )
                del whole["overlay_sequence"]
                traces = [
                    trace.model_dump(mode="json", exclude={"snapshot_id"})
                    for trace in project.explain(pack.snapshot_id, ANA)
                    if trace.item_id in ids or trace.item_id.startswith("request")
                ]
                found.append(
                    json.dumps(
                        [whole, pack.render("text"), traces], ensure_ascii=False, sort_keys=True
                    )
                )
    return found


SOURCES: dict[str, dict[str, Any]] = {name: {} for name in ("handbook", "a", "b")}


@pytest.mark.timeout(300)
@generated
@given(world=worlds())
def test_hidden_items_change_no_byte_of_a_pack(
    world: tuple[list[ContextItem], list[ContextItem], list[tuple[str, ContextItem]]],
):
    shown, hidden, withdrawn = world
    with tempfile.TemporaryDirectory() as folder:
        alone = make_project(Path(folder) / "alone", shown, SOURCES)
        everything = [*shown, *hidden, *(item for _, item in withdrawn)]
        among = make_project(Path(folder) / "among", everything, SOURCES)
        if withdrawn:
            append_overlay(among, *(overlay(how, item.item_id) for how, item in withdrawn))
            build_index(among)
        assert packs(among, shown) == packs(alone, shown)


def test_words_of_what_was_withdrawn_weigh_nothing_before_any_build(tmp_path: Path):
    shown = [make_item(f"s{n}", text) for n, text in enumerate(SENTENCES)]
    gone = [
        make_item(f"a{n}", f"refund window {word} region 退款 " * 3)
        for n, word in enumerate(NAMES * 3)
    ]
    alone, among = (
        make_project(tmp_path / "alone", shown),
        make_project(tmp_path / "among", [*shown, *gone]),
    )
    append_overlay(
        among, *(overlay(WITHDRAWALS[n % 4], item.item_id) for n, item in enumerate(gone))
    )
    assert packs(among, shown) == packs(alone, shown)


REFUND = "The refund window of goods is {} days."


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "hidden",
    [
        make_item(
            "k", "k: a term.", kind=ItemKind.GLOSSARY, title="退款期限", synonyms=("refund window",)
        ),
        make_item(
            "k", "k: a term.", kind=ItemKind.GLOSSARY, title="refund window", subject="other:thing"
        ),
        make_item("k", "k", kind=ItemKind.MEMORY, subject="other:refund-window"),
        make_item("a", "rare " * 40 + REFUND.format(14), title="refund window"),
    ],
    ids=["a synonym", "the same name", "a subject", "many words"],
)
def test_a_hidden_name_neither_makes_nor_silences_a_conflict(
    tmp_path: Path, place: str, hidden: ContextItem
):
    scope = {
        "tenant": "acme",
        "groups": ("*",),
        **{k: v for k, v in PLACES[place].items() if k != "sensitivity"},
    }
    closed = hidden.model_copy(
        update={
            "scope": hidden.scope.model_copy(update=scope),
            "sensitivity": PLACES[place].get("sensitivity", hidden.sensitivity),
        }
    )
    shown = [
        make_item("one", REFUND.format(14), authority=90),
        make_item("two", REFUND.format(30)),
        make_item("三", "商品的退款期限为45天。"),
        make_item(
            "t",
            "refund window: a term.",
            kind=ItemKind.GLOSSARY,
            title="refund window",
            synonyms=("退款期限",),
        ),
    ]
    alone, among = (
        make_project(tmp_path / "alone", shown),
        make_project(tmp_path / "among", [*shown, closed]),
    )
    with open_project(alone) as project:
        request = ContextRequest(task=Task(text=TASKS[0]), identity=ANA)
        assert project.assemble(request, at=NOW).conflicts
    assert packs(among, shown) == packs(alone, shown)


@pytest.mark.parametrize("text", ["Lists all orders of a customer.", "列出一位客户的所有订单。"])
def test_a_tool_that_has_its_own_name_back_is_counted_under_it(tmp_path: Path, text: str):
    def tool(source: str, description: str) -> ContextItem:
        content = {
            "name": "list_orders",
            "description": description,
            "input_schema": {"type": "object"},
        }
        return make_item(
            "list_orders",
            json.dumps(content),
            kind=ItemKind.TOOL,
            title="list_orders",
            source=source,
        )

    home = make_project(tmp_path, [tool("a", text), tool("b", f"{text} {text}")])
    append_overlay(home, overlay("retired", "tool:b/list_orders"))
    build_index(home)
    with open_project(home) as project:
        reader = project.index.view().reader
        (row,) = reader.find("acme", "tool:a/list_orders")
        assert reader.tools[row].name == "list_orders"
        for place, level in enumerate(Rendition):
            if level is not Rendition.COMPACT or reader.tokens["o200k_base"][row][place]:
                block = reader.block(row, level)
                assert reader.tokens["o200k_base"][row][place] == count_tokens(block, "o200k_base")


def test_a_group_of_tools_that_do_the_same_is_named_by_none_that_is_hidden(tmp_path: Path):
    content = json.dumps(
        {"name": "refund", "description": "Pays an order back to the customer.", "input_schema": {}}
    )
    tools = [make_item(name, content, kind=ItemKind.TOOL, title="refund") for name in ("b", "c")]
    secret = make_item("a-secret", content, kind=ItemKind.TOOL, title="refund", groups=("finance",))
    with open_project(make_project(tmp_path / "two", [*tools, secret])) as project:
        assert {tool.semantic_overlap_group for tool in project.tools(identity=ANA, at=NOW)} == {
            "tool:handbook/b"
        }
    with open_project(make_project(tmp_path / "one", [tools[0], secret])) as project:
        assert [tool.semantic_overlap_group for tool in project.tools(identity=ANA, at=NOW)] == [
            None
        ]
