"""What items claim: quantities, inclusions, formulas, defaults, columns; and which claims
contradict each other.
"""

from __future__ import annotations

import pytest

from bench.synthetic import make_rows
from ctx_pipeline.claims.contested import contested_table
from ctx_pipeline.claims.extract import claims_of, claims_table
from ctx_pipeline.claims.inclusion import inclusions
from ctx_pipeline.claims.polar import opposites
from ctx_pipeline.claims.quantities import quantities, same_value
from ctx_pipeline.claims.words import folded
from ctx_pipeline.contracts import ContextItem, ItemKind
from testing.artifacts import make_item


def values(text: str) -> list[tuple[str, str]]:
    return [(found.dimension, found.value) for found in quantities(folded(text))]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("30 days", "thirty days"),
        ("30 days", "三十天"),
        ("30天", "1 month"),
        ("1.5万元", "15,000 yuan"),
        ("5%", "百分之五"),
        ("CNY 7.3m", "7,341,902元"),
        ("90 minutes", "5400 seconds"),
        ("20 GB", "20GB以内"),
    ],
)
def test_one_quantity_is_one_value_however_it_is_written(left: str, right: str):
    (one,), (other,) = values(left), values(right)
    assert one[0] == other[0]
    assert same_value(one[1], other[1])


@pytest.mark.parametrize(
    ("left", "right"), [("30 days", "14天"), ("1 hour", "90 minutes"), ("1 month", "60 days")]
)
def test_two_quantities_are_two_values(left: str, right: str):
    (one,), (other,) = values(left), values(right)
    assert one[0] == other[0]
    assert not same_value(one[1], other[1])


@pytest.mark.parametrize("text", ["step v2 of abc123", "at 10:30", "第三章", "一个订单"])
def test_numbers_that_only_name_something_are_no_quantities(text: str):
    assert values(text) == []


def contested(*items: ContextItem) -> list[int]:
    """How many contested claims each item has, in the order given."""
    rows = make_rows(listed := list(items))
    keys = (
        contested_table(rows, claims_table(listed), set(range(len(rows))))
        .column("claim_keys")
        .to_pylist()
    )
    found = {row.item_id: len(key) for row, key in zip(rows, keys, strict=True)}
    return [found[item.item_id] for item in items]


def document(name: str, text: str, **more: object) -> ContextItem:
    return make_item(name, text, **more)  # type: ignore[arg-type]


def term(name: str, *synonyms: str, subject: str) -> ContextItem:
    text = f"{name}: a term."
    return make_item(
        name,
        text,
        kind=ItemKind.GLOSSARY,
        source="words",
        title=name,
        subject=subject,
        synonyms=synonyms,
    )


REFUND_WINDOW = term("refund window", "退款期限", subject="policy:refund-window")
GMV = make_item(
    "gmv",
    (
        "metric: gmv\ndescription: Value of paid orders, refunds "
        "excluded. 不含退款。\nexpression: sum(amount)"
    ),
    kind=ItemKind.METRIC,
    source="registry",
    title="gmv",
    subject="metric:gmv",
    synonyms=("成交总额",),
)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Refunds are accepted within 30 days.", "Refunds are accepted within 14 days."),
        ("The refund window is 30 days.", "退款期限为14天。"),
        (
            "The refund window is 30 days.",
            "According to Li, customers have a refund window of two weeks.",
        ),
        ("GMV includes refunds.", "成交总额不含退款。"),
        ("When we compute GMV, refunds are left out.", "退款计入成交总额。"),
        (
            "The batch size of imports defaults to 500.",
            "The batch size of imports defaults to 1,000.",
        ),
        ("Gift cards are refundable.", "Gift cards are not refundable."),
        ("Contractors must not open finance reports.", "Contractors may open finance reports."),
        ("客服可以批准退款申请。", "客服不得批准退款申请。"),
        ("GMV = orders / sessions", "GMV is orders divided by customers."),
        ("The sales dashboard is refreshed daily.", "The sales dashboard is refreshed every week."),
        ("orders.amount is VARCHAR.", "orders 表的 amount 列类型是 DOUBLE。"),
    ],
)
def test_texts_that_give_one_thing_two_values_contradict_each_other(left: str, right: str):
    found = contested(document("a", left), document("b", right), REFUND_WINDOW, GMV)
    assert found[0] > 0
    assert found[1] > 0


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("The refund window is 30 days.", "退款期限为三十天。"),
        ("In 2024 the refund window was 30 days.", "In 2025 the refund window was 14 days."),
        ("The refund window for VIP members is 60 days.", "The refund window is 30 days."),
        ("华东区退款期限为30天。", "华北区退款期限为14天。"),
        ("The refund window is 30 days.", "The refund window used to be 14 days."),
        ("The refund window is 30 days.", "Should the refund window be 14 days?"),
        ("The refund window is 30 days.", "The refund window review takes 5 days."),
        ("The refund window is 30 days.", "The refund window is 30 days. Answers take 14 hours."),
        ("GMV of channel X includes refunds.", "GMV of channel Y excludes refunds."),
        ("GMV includes refunds.", "GMV excludes gift cards."),
        ("GMV grew by 5%.", "GMV is 3% of the plan."),
        ("Timeout: 30 seconds", "Timeout: 60 seconds"),
        ("Your card was charged 20 dollars.", "Your card was charged 35 dollars."),
    ],
)
def test_texts_that_only_look_alike_do_not(left: str, right: str):
    assert contested(document("a", left), document("b", right), REFUND_WINDOW)[:2] == [0, 0]


def test_a_memory_in_other_words_does_not_contradict_the_registry_but_one_of_other_sense_does():
    same = make_item(
        "m1",
        "GMV leaves refunds out, as finance wants it.",
        kind=ItemKind.MEMORY,
        subject="metric:gmv",
    )
    other = make_item("m2", "It includes refunds.", kind=ItemKind.MEMORY, subject="metric:gmv")
    assert contested(GMV, same) == [0, 0]
    assert contested(GMV, other) == [1, 1]


def test_two_definitions_of_one_subject_with_other_expressions_contradict_each_other():
    text = "metric: gmv\nexpression: sum(amount) - sum(refunds)"
    other = make_item("gmv", text, kind=ItemKind.METRIC, source="legacy", subject="metric:gmv")
    spaced = make_item(
        "gmv",
        "metric: gmv\nexpression: SUM( amount )",
        kind=ItemKind.METRIC,
        source="x",
        subject="metric:gmv",
    )
    assert contested(GMV, other) == [1, 1]
    assert contested(GMV, spaced) == [0, 0]


def test_chunks_of_one_document_and_versions_of_one_item_never_contradict_each_other():
    chunks = [
        document("a.md#1", "The refund window is 30 days."),
        document("a.md#2", "The refund window is 14 days."),
    ]
    versions = [
        document("b", f"The refund window is {days} days.", version=f"{days}") for days in (30, 14)
    ]
    assert contested(*chunks, REFUND_WINDOW)[:2] == [0, 0]
    assert contested(*versions, REFUND_WINDOW)[:2] == [0, 0]


def test_a_column_of_two_databases_is_two_columns():
    def column(source: str, kind: str) -> ContextItem:
        text = f"column: orders.amount\ntype: {kind}"
        return make_item(
            "orders.amount",
            text,
            kind=ItemKind.SCHEMA,
            source=source,
            subject="schema:orders.amount",
        )

    memory = make_item("m", "orders.amount is a string", kind=ItemKind.MEMORY)
    assert contested(column("a", "DOUBLE"), memory) == [1, 1]
    assert contested(column("a", "DOUBLE"), column("b", "DATE"), memory) == [0, 0, 0]


def test_a_form_that_many_documents_fill_in_is_no_statement():
    mails = [
        document(f"m{n}", f"Your order weighs {n} kilograms in its parcel.") for n in range(3, 14)
    ]
    assert sum(contested(*mails)) == 0
    assert contested(*mails[:2]) == [1, 1]


def test_items_of_two_tenants_never_contradict_each_other():
    other = document("b", "The refund window is 14 days.", tenant="globex")
    assert contested(document("a", "The refund window is 30 days."), other, REFUND_WINDOW)[:2] == [
        0,
        0,
    ]


def test_what_instructs_makes_no_claims():
    text = "The refund window is 30 days."
    assert claims_of(make_item("p", text, kind=ItemKind.POLICY)) == []
    assert claims_of(make_item("d", text)) != []


def metric(name: str, description: str) -> ContextItem:
    text = f"metric: {name}\ndescription: {description}"
    return make_item(name, text, kind=ItemKind.METRIC, subject=f"metric:{name}")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (
            "Goods may be returned within 30 days.",
            "Goods can be sent back up to 14 days after they arrive.",
        ),
        ("Access logs are kept for 180 days.", "We delete access logs after 90 days."),
        ("Goods may be returned within 30 days.", "商品可在15天内退货。"),
        ("保修期为24个月。", "The warranty lasts one year."),
        ("发票须在45天内付清。", "发票的付款期限是60天。"),
        ("Two-factor authentication is mandatory.", "Two-factor authentication is optional."),
        ("Company cars may be used privately.", "公司车辆禁止私用。"),
        ("Pets are not allowed.", "允许携带宠物。"),
        ("The default log level is WARNING.", "The default log level is INFO."),
        ("The close is done on the 3rd working day.", "The close is done on the 5th working day."),
        ("A new buyer is someone who ordered once.", "A new buyer is someone who registered once."),
        ("新客指首次下单的客户。", "新客指首次注册的客户。"),
        ("退货率按件数计算。", "退货率按金额计算。"),
        ("The late fee is 2 %.", "The late fee is 1.5 %."),
    ],
)
def test_items_of_one_subject_contradict_each_other_in_other_words(left: str, right: str):
    assert contested(document("a", left, subject="x:y"), document("b", right, subject="x:y")) == [
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (
            "Goods may be returned within 30 days.",
            "In the East region goods may be returned within 14 days.",
        ),
        ("商品可在30天内退货。", "华东区商品可在15天内退货。"),
        ("Annual leave is 25 days.", "Up to 5 days of annual leave can be carried over."),
        ("年假为10天。", "未休年假可结转5天到次年。"),
        (
            "Expenses above 500 USD need approval by a director.",
            "Expenses above 5000 USD need approval by the CFO.",
        ),
        (
            "The monthly close is done on the 3rd day.",
            "The quarterly close is done on the 10th day.",
        ),
        ("Guest checkout is enabled.", "Guest checkout does not support invoices."),
        ("优惠券可以叠加使用。", "优惠券不可兑换现金。"),
        ("Refunds take 3 working days.", "退款需财务审批。"),
        ("Ana prefers weekly reports.", "Ana prefers charts over tables."),
        ("新客指首次下单的客户。", "新客是第一次下单的客户，不区分渠道。"),
    ],
)
def test_items_of_one_subject_that_say_more_or_other_things_do_not(left: str, right: str):
    assert contested(document("a", left, subject="x:y"), document("b", right, subject="x:y")) == [
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ("Orders divided by sessions", "Conversion is orders divided by page views."),
        ("Average order value: revenue divided by orders", "AOV is revenue divided by visits."),
        ("Users who opened the app that day", "DAU counts everyone who has the app installed."),
        ("当天打开应用的用户数", "日活指当天安装了应用的用户数。"),
    ],
)
def test_a_memory_defines_a_metric_by_something_else(description: str, said: str):
    name = "日活" if "日活" in said else said.split()[0].lower()
    assert contested(metric(name, description), document("m", said, subject=f"metric:{name}")) == [
        1,
        1,
    ]
    assert contested(metric(name, description), document("m", said)) == [1, 1]


@pytest.mark.parametrize(
    "said",
    [
        "The DAU dashboard is refreshed every 2 hours.",
        "DAU was 1.2 million last Friday.",
        "DAU is owned by the growth team.",
        "DAU means users who opened the app that day, bots aside.",
        "日活看板每两小时刷新一次。",
        "DAU 由增长团队负责。",
    ],
)
def test_what_is_said_around_a_metric_contradicts_no_definition(said: str):
    items = (
        metric("dau", "Users who opened the app that day"),
        document("m", said, subject="metric:dau"),
    )
    assert contested(*items) == [0, 0]


def test_a_subject_with_many_items_is_a_collection():
    items = [
        document(f"d{n}", f"Note {n}: {n + 2} days for step {n}.", subject="user:ana")
        for n in range(30)
    ]
    assert contested(*items) == [0] * 30


@pytest.mark.parametrize(
    ("titles", "texts"),
    [
        (
            ("Monthly review 2026-09", "Monthly review 2026-10"),
            ("GMV was 38 million CNY.", "GMV was 41 million CNY."),
        ),
        (("第40周周报", "第41周周报"), ("仓库破损率为1.2%。", "仓库破损率为1.9%。")),
        (("Service A", "Service B"), ("GMV is held for 30 days.", "GMV is held for 45 days.")),
    ],
)
def test_titles_that_name_two_months_weeks_or_letters_keep_claims_apart(
    titles: tuple[str, str], texts: tuple[str, str]
):
    named = term("GMV", subject="metric:gmv")
    sides = [
        document(name, text, title=title)
        for name, text, title in zip("ab", texts, titles, strict=True)
    ]
    assert contested(named, *sides) == [0, 0, 0]
    alike = [document(name, text, title="Review") for name, text in zip("ab", texts, strict=True)]
    assert all(count > 0 for count in contested(named, *alike)[1:])


def test_hidden_items_of_a_subject_silence_no_conflict_between_those_that_are_shown():
    sides = [
        document("a", "Refunds are possible for 30 days.", subject="policy:refunds"),
        document("b", "We accept refunds for 14 days.", subject="policy:refunds"),
    ]
    board = [
        document(
            f"h{at}",
            f"The board heard of refunds number {at}, paid in {at + 2} days.",
            subject="policy:refunds",
            groups=("board",),
        )
        for at in range(40)
    ]
    alone = contested(*sides)
    assert all(alone)
    assert contested(*sides, *board)[:2] == alone


ADVERBS = (
    "hourly",
    "daily",
    "weekly",
    "every day",
    "monthly",
    "annually",
    "manually",
    "automatically",
)
CHINESE_WORDS = ("每日", "每周", "每季度", "升序", "公开", "手动", "周三", "星期日", "北京时间")


@pytest.mark.parametrize(
    "word", [*ADVERBS, "utc", "asia/shanghai", "mondays", "public", "gross", "descending"]
)
def test_a_word_of_a_set_is_found_wherever_it_stands(word: str):
    for text in (
        f"{word} reports run for customers",
        f"reports run {word}",
        f"reports, {word}, run for customers",
    ):
        assert list(opposites(text)), text


@pytest.mark.parametrize("word", CHINESE_WORDS)
def test_a_chinese_word_of_a_set_is_found_wherever_it_stands(word: str):
    assert list(opposites(f"报表{word}生成"))
    assert list(opposites(f"{word}报表生成"))


@pytest.mark.parametrize(
    "clause",
    [
        "revenue includes tax",
        "revenue contains shipping",
        "tax is counted in revenue",
        "revenue covers shipping",
        "revenue is gross of discounts",
        "gmv is reported before refunds",
        "shipping goes into revenue",
        "tax is part of revenue",
        "revenue excludes tax",
        "revenue omits shipping",
        "revenue leaves out tax",
        "tax is left out of revenue",
        "revenue is net of refunds",
        "revenue subtracts refunds",
        "refunds are netted out of revenue",
        "revenue ignores tax",
        "revenue strips out tax",
        "销售额包含运费",
        "销售额不含税费",
        "销售额剔除退款",
        "退款不计入销售额",
        "运费属于销售额",
        "从销售额扣除退款",
    ],
)
def test_what_is_part_of_something_is_read_whatever_the_verb(clause: str):
    assert list(inclusions(clause, defining=True)), clause
