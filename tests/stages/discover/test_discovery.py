"""What leads to a candidate beside search: synonyms, time words, related items; and what its
features say.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.contracts import (
    ContextItem,
    ContextRequest,
    Exclusion,
    Identity,
    ItemKind,
    Rendition,
    Sensitivity,
    Task,
    Trust,
)
from testing.artifacts import ANA, NOW, make_item, make_project, open_project
from tests.stages.budget.test_choices import assembled

LONG = (
    "Refund requests reach the service desk by phone or mail. The desk "
    "checks the receipt and the state of the goods, "
    "then pays the customer back by the same way as the purchase was paid. "
    "Shipping costs are carried by the shop when "
    "the goods were faulty, and by the customer in every other case. "
    "Vouchers are given back as vouchers."
)
CHINESE = (
    "顾客可以在收货七天以内向客服申请退款，客服核对订单与商品状态之后按照原来的支付方式把款项退还给顾客。"
    "如果商品存在质量问题，运费由商家承担，其他情况由顾客承担，优惠券以优惠券形式退回账户。"
)


def metric(name: str, *synonyms: str, text: str | None = None, **more: Any) -> ContextItem:
    content = text or f"metric: {name}"
    return make_item(
        name, content, kind=ItemKind.METRIC, source="registry", synonyms=synonyms, **more
    )


# --- synonyms


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    items = [
        metric("gmv", "成交总额", "gross merchandise value"),
        metric("net_gmv", "net gross merchandise value"),
        metric("margin", "毛利", groups=("finance",)),
        metric("gross margin", "毛利率"),
        make_item("english", "the gmv of a shop is what it sold", source="docs"),
        make_item("chinese", "成交总额不含退款", source="docs"),
        *(
            make_item(f"noise{number}", f"weather report {number} 天气", source="docs")
            for number in range(8)
        ),
    ]
    return make_project(tmp_path_factory.mktemp("named"), items)


@pytest.mark.parametrize(
    ("text", "term", "document"),
    [
        ("华东的成交总额是多少", "metric:registry/gmv", "document:docs/english"),
        ("Gross Merchandise-Value by region", "metric:registry/gmv", "document:docs/chinese"),
        ("ＧＭＶ by region", "metric:registry/gmv", "document:docs/chinese"),
    ],
)
def test_a_synonym_finds_the_term_and_what_calls_it_otherwise(
    named: Path, text: str, term: str, document: str
):
    pack, traces = assembled(named, text)
    assert "glossary" in traces[term].discovered_by
    assert {term, document} <= {item.item_id for item in pack.items}
    assert "lexical" in traces[document].discovered_by


def test_the_longest_name_counts_and_a_part_of_a_word_is_none(named: Path):
    def found(text: str) -> set[str]:
        _, traces = assembled(named, text)
        return {item_id for item_id, trace in traces.items() if "glossary" in trace.discovered_by}

    assert found("net gross merchandise value") == {"metric:registry/net_gmv"}
    assert found("毛利率为什么下降") == {"metric:registry/gross margin"}
    assert found("the gmvs of two shops") == {"metric:registry/gmv"}
    assert found("gmvx and xgmv and weather") == set()


def test_a_hidden_term_changes_neither_candidates_nor_their_order(tmp_path: Path):
    documents = [
        make_item(f"d{number}", f"毛利 margin profit {number}", source="docs")
        for number in range(4)
    ]
    hidden = [
        metric("profit", "毛利", text="metric: profit", groups=("finance",)),
        metric("secret", "毛利 margin", sensitivity=Sensitivity.RESTRICTED),
        metric("other", "毛利", tenant="globex"),
        metric("past", "毛利", valid_until=NOW - timedelta(days=1)),
    ]
    seen = []
    for name, items in (("with", [*documents, *hidden[:3]]), ("without", documents)):
        pack, traces = assembled(make_project(tmp_path / name, items), "毛利 margin")
        seen.append(
            (pack.render("text"), {item_id: trace.features for item_id, trace in traces.items()})
        )
    assert seen[0] == seen[1]
    _, traces = assembled(make_project(tmp_path / "past", [*documents, hidden[3]]), "毛利 margin")
    assert all("glossary" not in trace.discovered_by for trace in traces.values())


def test_who_may_see_a_term_finds_it(tmp_path: Path):
    items = [
        metric("profit", "毛利", groups=("finance",)),
        make_item("doc", "profit rules", source="docs"),
    ]
    home = make_project(tmp_path, items)
    finance = Identity(
        principal="bo", tenant="acme", groups=("finance",), clearance=Sensitivity.INTERNAL
    )
    with open_project(home) as project:
        pack = project.assemble(ContextRequest(task=Task(text="毛利"), identity=finance), at=NOW)
    assert {"metric:registry/profit", "document:docs/doc"} <= {item.item_id for item in pack.items}


# --- time words


def test_the_model_is_told_what_a_time_word_means_and_the_pack_keeps_it(tmp_path: Path):
    items = [
        make_item("october", "gmv report", source="docs", title="GMV report 2026-10"),
        make_item("september", "gmv report!", source="docs", title="GMV report 2026-09"),
        make_item(
            "seen",
            "gmv of a day",
            kind=ItemKind.MEMORY,
            observed_at=datetime(2026, 10, 9, tzinfo=UTC),
        ),
    ]
    pack, traces = assembled(make_project(tmp_path, items), "gmv report last month")
    (period,) = pack.periods
    assert (period.text, period.start, period.end) == (
        "last month",
        datetime(2026, 10, 1, tzinfo=UTC),
        datetime(2026, 11, 1, tzinfo=UTC),
    )
    state = next(section for section in pack.sections if section.name == "state")
    assert '"last month" = 2026-10-01 .. 2026-11-01' in state.items[-1].text
    fits = {
        item_id: trace.features["period_fit"]
        for item_id, trace in traces.items()
        if "handbook" in item_id or "docs" in item_id
    }
    assert fits == {
        "document:docs/october": 1.0,
        "document:docs/september": 0.0,
        "memory:handbook/seen": 1.0,
    }
    assert traces["document:docs/october"].score > traces["document:docs/september"].score


def test_without_a_time_word_nothing_of_it_is_in_the_pack(tmp_path: Path):
    pack, traces = assembled(
        make_project(tmp_path, [make_item("a", "gmv", title="GMV 2026-10")]), "gmv, it may be"
    )
    assert pack.periods == ()
    assert "Today is" not in pack.render("text")
    assert all("period_fit" not in trace.features for trace in traces.values())


# --- related items


def related_items() -> list[ContextItem]:
    table = make_item("orders", "table: orders", kind=ItemKind.SCHEMA, source="db", title="orders")
    columns = [
        make_item(
            f"orders.{name}",
            f"column {name}",
            kind=ItemKind.SCHEMA,
            source="db",
            depends_on=("schema:db/orders",),
        )
        for name in ("amount", "status", "colour")
    ]
    return [
        metric(
            "gmv",
            text="metric: gmv\nexpression: sum(Amount) where status = 1",
            depends_on=("schema:*/orders",),
        ),
        table,
        *columns,
        make_item("guide.md#1", "how the handbook begins", source="docs"),
        make_item("guide.md#2", "refund deadline zebra", source="docs"),
        make_item("guide.md#3", "what comes after", source="docs"),
        make_item("guide.md#5", "far away", source="docs"),
        make_item(
            "pay", '{"name":"pay","description":"giraffe"}', kind=ItemKind.TOOL, source="tools"
        ),
        make_item(
            "payer",
            "how to settle",
            kind=ItemKind.SKILL,
            source="skills",
            depends_on=("tool:*/pay",),
        ),
        make_item("app.py", "file: app.py", kind=ItemKind.CODE, source="code", path="code/app.py"),
        make_item(
            "app.py::run",
            "walrus",
            kind=ItemKind.CODE,
            source="code",
            depends_on=("code:code/app.py",),
        ),
        make_item(
            *("test_app.py", "file: tests"),
            kind=ItemKind.CODE,
            source="code",
            path="code/test_app.py",
            depends_on=("code:code/app.py",),
        ),
        make_item(
            *("other.py", "file: other"),
            kind=ItemKind.CODE,
            source="code",
            path="code/other.py",
            depends_on=("code:code/app.py",),
        ),
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gmv", {"schema:db/orders.amount", "schema:db/orders.status"}),
        ("zebra", {"document:docs/guide.md#1", "document:docs/guide.md#3"}),
        ("giraffe", {"skill:skills/payer"}),
        ("walrus", {"code:code/test_app.py"}),
        ("table: orders", {"metric:registry/gmv"}),
    ],
)
def test_what_might_help_beside_a_hit_comes_in_as_related(
    tmp_path: Path, text: str, wanted: set[str]
):
    home = make_project(tmp_path, related_items(), head="[policy]\ncandidate_limit = 1")
    _, traces = assembled(home, text)
    related = {
        item_id: trace for item_id, trace in traces.items() if "related" in trace.discovered_by
    }
    assert wanted <= related.keys()
    assert related.keys().isdisjoint(
        {"schema:db/orders.colour", "document:docs/guide.md#5", "code:code/other.py"}
    )
    assert all(
        trace.features["dependency"] == 0.0 and trace.parent_item_id for trace in related.values()
    )


def test_a_related_item_is_left_out_before_what_a_hit_needs(tmp_path: Path):
    home = make_project(tmp_path, related_items(), head="[policy]\ncandidate_limit = 1")
    full, _ = assembled(home, "gmv")
    for budget in range(full.total_tokens, 300, -40):
        pack, _ = assembled(home, "gmv", token_budget=budget + 1_000)
        shown = {item.item_id for item in pack.items}
        if "schema:db/orders.amount" in shown:
            assert "schema:db/orders" in shown


def test_only_permitted_items_are_related(tmp_path: Path):
    items = [
        make_item("guide.md#1", "begin", source="docs", groups=("finance",)),
        make_item("guide.md#2", "zebra", source="docs"),
    ]
    home = make_project(tmp_path, items, head="[policy]\ncandidate_limit = 1")
    _, traces = assembled(home, "zebra")
    assert "document:docs/guide.md#1" not in traces


def test_hidden_items_take_no_place_of_related_ones(tmp_path: Path):
    metrics = [
        metric(
            f"m{n}",
            text=f"metric {n}",
            depends_on=("schema:*/orders",),
            groups=("finance",) if n < 9 else ("*",),
        )
        for n in range(10)
    ]
    table = make_item("orders", "zebra", kind=ItemKind.SCHEMA, source="db", title="orders")
    noise = [make_item("noise", "zebra zebra", source="docs")]
    _, traces = assembled(
        make_project(tmp_path, [*metrics, table, *noise], head="[policy]\ncandidate_limit = 2"),
        "zebra",
    )
    assert "metric:registry/m9" in traces
    assert "metric:registry/m0" not in traces


# --- near-duplicates


def pair(first: str, second: str, **more: Any) -> list[ContextItem]:
    return [
        make_item("a", first, authority=60, **more),
        make_item("b", second, authority=50, **more),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LONG, LONG.replace(". The desk checks", "; the desk  checked")),
        (LONG + " Ask the desk of the nearest store for help.", LONG),
        (CHINESE, CHINESE.replace("，", "； ")),
        (CHINESE + "如有疑问请联系客服。", CHINESE),
    ],
)
def test_prose_that_says_no_more_than_another_is_folded(tmp_path: Path, first: str, second: str):
    _, traces = assembled(make_project(tmp_path, pair(first, second)), "refund 退款")
    loser = traces["document:handbook/b"]
    assert loser.excluded_reason is Exclusion.DUPLICATE
    assert loser.counterfactual == "near-duplicate of document:handbook/a"
    assert traces["document:handbook/a"].selected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LONG + " It takes 14 days.", LONG + " It takes 15 days."),
        (LONG, LONG.replace("are carried", "are not carried")),
        (LONG, LONG.replace("carried by the shop", "carried by the Shop")),
        (CHINESE, CHINESE.replace("七天", "八天")),
        (CHINESE, CHINESE.replace("可以在收货", "不可以在收货")),
        (CHINESE, CHINESE.replace("顾客", "商家", 1)),
        (LONG, LONG.replace("reach the service desk", "leave the service desk")),
        (LONG, LONG + " Ask the desk of the nearest store for help."),
        (LONG, LONG[: len(LONG) // 2] + CHINESE),
    ],
)
def test_texts_that_say_something_else_are_kept_however_alike_they_are(
    tmp_path: Path, first: str, second: str
):
    _, traces = assembled(make_project(tmp_path, pair(first, second)), "refund 退款")
    assert Exclusion.DUPLICATE not in {trace.excluded_reason for trace in traces.values()}


def test_definitions_and_other_subjects_are_never_near_duplicates(tmp_path: Path):
    other = LONG.replace(", ", " and that ")
    skills = pair(LONG, other, kind=ItemKind.SKILL)
    subjects = [
        make_item("c", LONG + " So it is.", kind=ItemKind.MEMORY, subject="refund:eu"),
        make_item("d", other + " So it is.", kind=ItemKind.MEMORY, subject="refund:us"),
    ]
    _, traces = assembled(make_project(tmp_path, [*skills, *subjects]), "refund desk")
    reasons = {trace.excluded_reason for item_id, trace in traces.items() if "handbook" in item_id}
    assert Exclusion.DUPLICATE not in reasons


def test_of_near_duplicates_the_newest_of_the_most_trusted_stays(tmp_path: Path):
    texts = [LONG.replace(", ", word) for word in (" and ", "; ", " or ")]
    items = [
        make_item("old", texts[0], created_at=NOW - timedelta(days=9)),
        make_item("new", texts[1], created_at=NOW - timedelta(days=1)),
        make_item("web", texts[2], created_at=NOW, trust=Trust.RETRIEVED_EXTERNAL),
    ]
    _, traces = assembled(make_project(tmp_path, items), "refund desk")
    kept = {
        item_id
        for item_id, trace in traces.items()
        if "handbook" in item_id and trace.excluded_reason is None
    }
    assert kept == {"document:handbook/new"}


def test_a_hidden_near_duplicate_folds_nothing(tmp_path: Path):
    other = LONG.replace(", ", " and that ")
    items = [make_item("a", LONG, authority=90, groups=("finance",)), make_item("b", other)]
    _, traces = assembled(make_project(tmp_path, items), "refund desk")
    assert traces["document:handbook/b"].selected


# --- features


def test_each_feature_says_what_it_is_for(tmp_path: Path):
    items = [
        make_item("plain", "gmv refund plain"),
        make_item("scoped", "gmv refund scoped", task_types=("analysis",)),
        make_item(
            "fresh", "gmv refund fresh", created_at=NOW, last_verified_at=NOW - timedelta(hours=24)
        ),
        make_item("dated", "gmv refund dated", observed_at=NOW - timedelta(days=90)),
        make_item("long", "gmv refund " + "word " * 600),
        make_item("guess", "gmv refund guess", kind=ItemKind.MEMORY, authority=40, subject="s:x"),
        make_item("truth", "gmv refund truth", kind=ItemKind.DOCUMENT, authority=90, subject="s:x"),
        make_item("code", "gmv refund code", kind=ItemKind.CODE),
    ]
    home = make_project(tmp_path, items, {"handbook": {"freshness": "24h"}})
    task = {"type": "analysis", "text": "gmv refund"}
    _, traces = assembled(home, phase="edit", task=task, token_budget=9_000)
    features = {item_id.rpartition("/")[2]: trace.features for item_id, trace in traces.items()}
    assert features["plain"]["task_fit"] == 0.4
    assert features["scoped"]["task_fit"] == features["code"]["task_fit"] == 1.0
    assert features["fresh"]["freshness"] == pytest.approx(0.5)
    assert (features["fresh"]["recency"], features["plain"]["recency"]) == (1.0, 0.5)
    assert features["dated"]["recency"] == pytest.approx(0.5)
    assert features["long"]["cost"] > 10 * features["plain"]["cost"] > 0
    assert (features["guess"]["conflict_risk"], features["truth"]["conflict_risk"]) == (1.0, 0.0)
    assert all(0 <= value <= 1 for one in features.values() for value in one.values())


def test_a_policy_says_what_fits_and_what_counts(tmp_path: Path):
    items = [
        make_item("doc", "gmv refund"),
        make_item("guess", "gmv refund!", kind=ItemKind.MEMORY, authority=40),
    ]
    head = (
        "[policy]\nfit = {document = 0.9}\nweights = {task_fit = 1.0, "
        "cost = 0.0, conflict_risk = 2.0}\n"
        'roles = ["auditor"]\n[[policy.rules]]\nwhen = {role = '
        '"auditor"}\nset = {fit = {document = 0.1}}'
    )
    home = make_project(tmp_path, items, head=head)
    _, plain = assembled(home)
    _, audited = assembled(home, agent_role="auditor")
    doc = "document:handbook/doc"
    assert (plain[doc].features["task_fit"], audited[doc].features["task_fit"]) == (0.9, 0.1)
    assert plain[doc].score - audited[doc].score == pytest.approx(0.8)
    assert plain["memory:handbook/guess"].score < audited[doc].score


class ZebraReranker:
    """Says that what names a zebra answers everything."""

    name = "zebra"

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        return [float("zebra" in text) for text in texts]


def test_a_reranker_moves_the_best_candidates_and_is_part_of_the_ranking_version(tmp_path: Path):
    items = [
        make_item("a", "gmv refund gmv refund"),
        make_item("b", "gmv refund zebra of many other words"),
    ]
    home = make_project(tmp_path, items)
    request = ContextRequest(task=Task(text="gmv refund"), identity=ANA)
    orders: list[list[str]] = []
    with open_project(home) as project:
        for reranker in (None, ZebraReranker()):
            project.__dict__["reranker"] = reranker
            pack = project.assemble(request, at=NOW)
            assert pack.ranking_version.endswith("+zebra") is (reranker is not None)
            traces = project.explain(pack.snapshot_id, ANA)
            found = sorted(
                (trace for trace in traces if "handbook" in trace.item_id),
                key=lambda one: -one.score,
            )
            orders.append([trace.item_id[-1] for trace in found])
    assert orders == [["a", "b"], ["b", "a"]]


# --- loading


def test_what_loads_just_in_time_is_a_pointer_that_says_what_expanding_gives(tmp_path: Path):
    text = "gmv refund rules in full"
    home = make_project(
        tmp_path, [make_item("a", text, source="lazy")], {"lazy": {"when_to_load": "just_in_time"}}
    )
    pack, _ = assembled(home)
    shown = next(item for item in pack.items if item.item_id == "document:lazy/a")
    assert shown.rendition is Rendition.POINTER
    assert f'characters="{len(text)}"' in shown.text
    assert "expand by id" in shown.text
    with open_project(home) as project:
        assert text in project.expand(shown.item_id, identity=ANA, at=NOW).text
