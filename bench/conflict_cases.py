"""Seeded contradictions, and pairs that only look like some, in English and Chinese.

Each case is two or three items, whether they contradict each other, and who wins. Templates come in
three parts: `tuned` are those that the extraction of claims was written with; `held_out` and
`unseen` were written apart from it, tried once as they were (.48 and .52 resolved), and the
extraction was then mended by what they showed.
"""

# ruff: noqa: E501, SIM905
# Templates and names are read more easily as long lines and as words in one text.

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from ctx_pipeline.contracts import (
    ContextItem,
    ItemKind,
    Locator,
    Provenance,
    Scope,
    Sensitivity,
    Trust,
)

NOW = datetime(2026, 11, 30, tzinfo=UTC)
Half = Literal["tuned", "held_out", "unseen"]
FAMILIES = ("registry_memory", "documents", "versions", "languages")

BRANDS = (
    "Kestrel Heron Osprey Falcon Merlin Harrier Buzzard Condor Plover Curlew Dunlin Avocet Lapwing Godwit Sandpiper Turnstone "
    "Redshank Whimbrel Sanderling Phalarope Guillemot Razorbill Puffin Fulmar Gannet Shearwater Petrel Skua Kittiwake Tern"
).split()
BRANDS_ZH = (
    "红隼 苍鹭 鱼鹰 游隼 灰背 白尾 秃鹰 神鹫 金鸻 杓鹬 滨鹬 反嘴 麦鸡 塍鹬 矶鹬 翻石 红脚 中杓 三趾 瓣蹼 海鸠 刀嘴 海鹦 暴雪 鲣鸟 剪水 海燕 贼鸥 三趾鸥 燕鸥"
).split()

PROPERTIES = (
    ("refund window", "退款期限", "day"),
    ("session timeout", "会话超时时间", "minute"),
    ("data retention period", "数据保留期限", "day"),
    ("late payment fee", "滞纳金比例", "percent"),
    ("free shipping threshold", "包邮门槛", "yuan"),
    ("upload size limit", "上传大小上限", "mb"),
    ("annual leave", "年假天数", "day"),
    ("commission rate", "佣金比例", "percent"),
    ("approval limit", "审批额度", "yuan"),
    ("warranty period", "保修期", "month"),
)
STATE = {
    "tuned": {
        "en": (
            "The {t} is {v}.",
            "{t}: {v}",
            "Our {t} is currently {v}.",
            "The {t} is set to {v}, confirmed with Li.",
            "The {t} is {v} for every customer.",
        ),
        "zh": ("{t}为{v}。", "{t}是{v}。", "目前{t}为{v}，已与李确认。", "{t}：{v}"),
    },
    "held_out": {
        "en": (
            "We give customers a {t} of {v}.",
            "According to the handbook the {t} amounts to {v}.",
            "Please note that the {t} has been {v} since March 2025.",
            "As of today, the {t} stands at {v}.",
            "Remember: {t} = {v}",
            "The {t} was changed to {v}.",
            "It was agreed that the {t} will be {v}.",
        ),
        "zh": (
            "根据手册，{t}一共{v}。",
            "{t}已经调整为{v}。",
            "我们的{t}现在是{v}。",
            "请注意：{t}统一按{v}执行。",
            "会上说{t}定为{v}，请知悉。",
        ),
    },
    "unseen": {
        "en": (
            "{t} has been fixed at {v} by the board.",
            "You can count on a {t} of {v}.",
            "Our terms specify {v} as the {t}.",
            "FYI the {t} equals {v}.",
            "Per the wiki, the {t} is now {v}",
            "- {t}: {v} (see the intranet)",
            "Li mentioned that the {t} runs to {v}.",
            "The current value for the {t} is {v}.",
            "The {t} went up to {v}.",
        ),
        "zh": (
            "{t}按规定应为{v}。",
            "{t}现行标准是{v}。",
            "公司规定的{t}是{v}。",
            "据李说，{t}是{v}。",
            "{t}达{v}。",
            "- {t}：{v}（见内网）",
            "记一下：{t}改成{v}了。",
            "{t}不是别的，就是{v}。",
        ),
    },
}
OBJECTS = (
    ("refunds", "退款"),
    ("tax", "税"),
    ("shipping fees", "运费"),
    ("cancelled orders", "取消订单"),
    ("discounts", "折扣"),
    ("gift cards", "礼品卡"),
    ("test orders", "测试订单"),
)
INCLUDE = {
    "tuned": {
        "en": (
            ("{m} includes {o}.", "{m} excludes {o}."),
            ("{o} are included in {m}.", "{o} are not included in {m}."),
        ),
        "zh": (("{m}包含{o}。", "{m}不含{o}。"), ("{o}计入{m}。", "{o}不计入{m}。")),
    },
    "held_out": {
        "en": (
            ("{m} counts {o} as well.", "{m} is reported net of {o}."),
            ("{o} are part of {m}.", "When we compute {m}, {o} are left out."),
            ("{m} contains {o}.", "{m} does not contain any {o}."),
            ("We never deduct {o} from {m}.", "We deduct {o} from {m}."),
        ),
        "zh": (
            ("{m}里算上了{o}。", "计算{m}时剔除{o}。"),
            ("{o}也算进{m}。", "{m}要扣除{o}。"),
            ("{m}的口径包括{o}。", "{m}的口径不包括{o}。"),
        ),
    },
    "unseen": {
        "en": (
            ("{m} also takes in {o}.", "{m} leaves out {o}."),
            ("All {o} are counted in {m}.", "No {o} are counted in {m}."),
            ("In {m} we include {o}.", "In {m} we do not include {o}."),
            ("{o} go into {m}.", "{o} never go into {m}."),
            ("{m}: {o} included", "{m}: {o} excluded"),
            ("The figure for {m} covers {o}.", "The figure for {m} ignores {o}."),
        ),
        "zh": (
            ("{m}统计时计入{o}。", "{m}统计时不计{o}。"),
            ("{o}属于{m}。", "{o}不属于{m}。"),
            ("{m}含{o}在内。", "{m}已剔除{o}。"),
            ("{m}中有{o}。", "{m}中没有{o}。"),
        ),
    },
}
FORMULAS = {
    "tuned": {
        "en": ("{m} = {a} / {b}", "{m} is {a} divided by {b}."),
        "zh": ("{m}等于{a}除以{b}。", "{m} = {a} / {b}"),
    },
    "held_out": {
        "en": (
            "{m} is calculated as {a} divided by {b}.",
            "We define {m} as {a} over {b}.",
            "{m} := {a} / {b}",
        ),
        "zh": ("{m}的计算公式为{a}除以{b}。", "{m}定义为{a}÷{b}。"),
    },
    "unseen": {
        "en": (
            "{m} equals {a} divided by {b}.",
            "{m} is the ratio of {a} to {b}.",
            "To get {m}, divide {a} by {b}.",
        ),
        "zh": ("{m}是{a}与{b}之比。", "用{a}除以{b}得到{m}。", "{m}={a}/{b}"),
    },
}
OPERANDS = (
    ("revenue", "收入"),
    ("orders", "订单数"),
    ("sessions", "会话数"),
    ("customers", "客户数"),
    ("profit", "利润"),
)
SENTENCES = {
    "tuned": (
        ("Refunds for {b} are accepted within {v}.", "day"),
        ("{b} orders ship within {v}.", "day"),
        ("Uploads to {b} are limited to {v}.", "mb"),
        ("{b} sessions expire after {v}.", "minute"),
        ("{b}的退款在{v}内受理。", "day_zh"),
        ("{b}的发票须在{v}内支付。", "day_zh"),
    ),
    "held_out": (
        ("Invoices from {b} are due within {v} of receipt.", "day"),
        ("{b} partners pay a commission of {v} on each sale.", "percent"),
        ("Every {b} export may hold up to {v} of data.", "mb"),
        ("{b} keeps audit logs for {v}.", "day"),
        ("The {b} gateway drops idle connections after {v}.", "minute"),
        ("{b}门店满{v}免配送费。", "yuan_zh"),
        ("{b}的审计日志保存{v}。", "day_zh"),
    ),
    "unseen": (
        ("Customers of {b} may cancel free of charge up to {v} before arrival.", "day"),
        ("A {b} password expires every {v}.", "day"),
        ("The maximum size of a {b} attachment is {v}.", "mb"),
        ("{b} couriers wait {v} at the door.", "minute"),
        ("{b} holds back {v} of every payout.", "percent"),
        ("{b}的客服会在{v}内回复邮件。", "day_zh"),
        ("购买{b}会员后{v}内可以无理由退款。", "day_zh"),
        ("{b}每笔提现最低{v}。", "yuan_zh"),
    ),
}
VARIED = {
    "tuned": ("{s}", "Currently, {s}", "{s}"),
    "held_out": ("Please note: {s}", "{s} This was checked with the team.", "Please note that {s}"),
    "unseen": ("As a rule, {s}", "Update: {s}", "{s} Ask Li if unsure."),
}
POLAR = {
    "tuned": (
        ("Gift cards of {b} are refundable.", "Gift cards of {b} are not refundable."),
        ("Contractors may open {b} reports.", "Contractors must not open {b} reports."),
        ("{b}报表可以导出。", "{b}报表不得导出。"),
        ("The {b} cache is enabled.", "The {b} cache is disabled."),
        ("The {b} dashboard is refreshed daily.", "The {b} dashboard is refreshed weekly."),
        ("The {b} batch size defaults to 500.", "The {b} batch size defaults to 1000."),
    ),
    "held_out": (
        (
            "Discount codes apply to {b} subscriptions.",
            "Discount codes do not apply to {b} subscriptions.",
        ),
        ("Approval is mandatory for {b} exports.", "Approval is optional for {b} exports."),
        ("{b}试用账户支持退款。", "{b}试用账户不支持退款。"),
        (
            "Interns are allowed to query {b} tables.",
            "Interns are not allowed to query {b} tables.",
        ),
        ("{b}的数据每天更新。", "{b}的数据每周更新。"),
        ("By default the {b} parser is strict.", "By default the {b} parser is lenient."),
        ("{b}的并发数默认为八。", "{b}的并发数默认值是16。"),
    ),
    "unseen": (
        (
            "{b} invoices can be edited after approval.",
            "{b} invoices cannot be edited after approval.",
        ),
        ("{b} stores personal data.", "{b} does not store personal data."),
        (
            "Deleting {b} records requires a second approval.",
            "Deleting {b} records does not require a second approval.",
        ),
        (
            "Two-factor login is enabled for {b} by default.",
            "Two-factor login is disabled for {b} by default.",
        ),
        ("{b}的密码必须包含数字。", "{b}的密码无需包含数字。"),
        ("{b}的日志默认加密。", "{b}的日志默认不加密。"),
        ("{b} reports are sent every Monday.", "{b} reports are sent every Friday."),
        ("{b}数据集对外公开。", "{b}数据集对外不公开。"),
    ),
}
TYPES = (
    ("VARCHAR", "a string", "字符串"),
    ("INTEGER", "an integer", "整数"),
    ("DOUBLE", "a float", "浮点数"),
    ("DATE", "a date", "日期"),
)
COLUMNS = {
    "tuned": ("{c} is {t}.", "The type of {c} is {w}.", "{c} 的类型是 {t}。"),
    "held_out": (
        "{c} is stored as {t}.",
        "The column {f} of table {tb} is {w}.",
        "{tb} 表的 {f} 字段类型为{z}。",
        "Careful, {c} holds {w}.",
    ),
    "unseen": (
        "{c} has type {t}.",
        "In table {tb}, column {f} is {w}.",
        "{tb}.{f} 字段存的是{z}。",
        "The data type of column {f} in {tb} is {t}.",
        "{c}: {t}",
    ),
}


@dataclass(frozen=True, slots=True)
class ConflictCase:
    """Items, what to ask, and what should come out."""

    family: str
    half: Half
    name: str
    ask: str
    items: tuple[ContextItem, ...]
    sides: tuple[str, str]
    contradicts: bool
    winner: str | None = None
    """None with `contradicts`: nobody wins and somebody is asked."""
    shown: tuple[str, ...] = field(default=(), compare=False)


def item(
    name: str,
    content: str,
    *,
    kind: ItemKind = ItemKind.DOCUMENT,
    title: str = "",
    subject: str | None = None,
    authority: int = 60,
    source: str = "docs",
    synonyms: tuple[str, ...] = (),
    valid_from: datetime | None = None,
    verified: datetime | None = None,
    version: str = "1",
) -> ContextItem:
    """An item that all of tenant `acme` may see."""
    return ContextItem(
        item_id=f"{kind.value}:{source}/{name}",
        version=version,
        kind=kind,
        subject=subject,
        title=title or name,
        content=content,
        provenance=Provenance(
            source_type="documents", source_id=source, locator=Locator(path=name)
        ),
        authority=authority,
        trust=Trust.ENTERPRISE_TRUSTED,
        sensitivity=Sensitivity.INTERNAL,
        scope=Scope(tenant="acme", groups=("*",)),
        synonyms=synonyms,
        valid_from=valid_from,
        last_verified_at=verified,
    )


def amount(rng: random.Random, unit: str, number: int, language: str) -> str:
    """Write a quantity in one of the ways that people write it."""
    ways = {
        ("day", "en"): (f"{number} days", f"{number} days", _word_en(number) + " days"),
        ("day", "zh"): (f"{number}天", f"{number} 天", _word_zh(number) + "天"),
        ("minute", "en"): (f"{number} minutes", f"{number} min"),
        ("minute", "zh"): (f"{number}分钟", _word_zh(number) + "分钟"),
        ("month", "en"): (f"{number} months", _word_en(number) + " months"),
        ("month", "zh"): (f"{number}个月", _word_zh(number) + "个月"),
        ("percent", "en"): (f"{number}%", f"{number} percent"),
        ("percent", "zh"): (f"{number}%", "百分之" + _word_zh(number)),
        ("yuan", "en"): (f"{number * 100:,} yuan", f"CNY {number * 100}"),
        ("yuan", "zh"): (f"{number * 100}元", f"{number * 100} 元"),
        ("mb", "en"): (f"{number} MB",),
        ("mb", "zh"): (f"{number}MB", f"{number} MB"),
    }
    return rng.choice(ways[unit, language])


_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
_HAN = "零一二三四五六七八九"


def _word_en(number: int) -> str:
    if number < 20:
        return _SMALL[number]
    return _TENS[number // 10] + (f"-{_SMALL[number % 10]}" if number % 10 else "")


def _word_zh(number: int) -> str:
    tens, ones = divmod(number, 10)
    head = "" if not tens else "十" if tens == 1 else f"{_HAN[tens]}十"
    return head + (_HAN[ones] if ones or not tens else "")


def _two(rng: random.Random) -> tuple[int, int]:
    first, second = rng.sample((3, 5, 7, 10, 12, 14, 15, 20, 21, 28, 30, 45, 60, 90), 2)
    return first, second


class _Maker:
    """Makes cases of one half; every case has a name of its own, so that one index can hold them
    all.
    """

    def __init__(self, seed: int, half: Half) -> None:
        self.rng = random.Random(f"{seed}-{half}")
        self.half: Half = half
        self.number = 0

    def brand(self) -> tuple[str, str, str]:
        """Return a name that no other case has, in both languages, and as an id."""
        self.number += 1
        first = BRANDS[self.number % len(BRANDS)]
        second = BRANDS[
            (
                self.number
                + {"tuned": 1, "held_out": 11, "unseen": 21}[self.half]
                + self.number // len(BRANDS)
            )
            % len(BRANDS)
        ]
        zh = BRANDS_ZH[BRANDS.index(first)] + BRANDS_ZH[BRANDS.index(second)]
        return f"{first} {second}", zh, f"{self.half[0]}{self.number}"

    def term(self) -> tuple[ContextItem, str, str, str, str, str]:
        """Return a glossary term with names in both languages: item, names, unit, subject, id."""
        brand, zh, key = self.brand()
        noun, noun_zh, unit = self.rng.choice(PROPERTIES)
        subject = f"term:{key}-{noun.replace(' ', '-')}"
        name, name_zh = f"{brand} {noun}", f"{zh}{noun_zh}"
        text = f"{name}: see the pages of the team."
        made = item(
            key,
            text,
            kind=ItemKind.GLOSSARY,
            title=name,
            subject=subject,
            source="words",
            synonyms=(name_zh,),
        )
        return made, name, name_zh, unit, subject, key

    def stated(self, language: str, name: str, value: str, half: Half | None = None) -> str:
        """State that something has a value."""
        return self.rng.choice(STATE[half or self.half][language]).format(t=name, v=value)

    def standing(self) -> tuple[dict[str, object], dict[str, object], bool]:
        """Return what makes the first of two sides win, by one of the criteria; False where nothing
        does.
        """
        way = self.rng.choice(("authority", "validity", "freshness", "equal"))
        if way == "authority":
            return {"authority": 80}, {"authority": 50}, True
        if way == "validity":
            return (
                {"valid_from": NOW - timedelta(days=10)},
                {"valid_from": NOW - timedelta(days=400)},
                True,
            )
        if way == "freshness":
            return (
                {"verified": NOW - timedelta(days=3)},
                {"verified": NOW - timedelta(days=300)},
                True,
            )
        same = {"verified": NOW - timedelta(days=3)}
        return same, same, False

    def pair(self, family: str, ask: str, extra: tuple[ContextItem, ...], left: str, right: str, *, contradicts: bool,
             key: str, kinds: tuple[ItemKind, ItemKind] = (ItemKind.DOCUMENT, ItemKind.DOCUMENT), subject: str | None = None,
             titles: tuple[str, str] = ("", "")) -> ConflictCase:  # fmt: skip
        """Make a case of two texts."""
        one, other, decided = self.standing()
        texts = [
            (f"{key}-a", left, one, kinds[0], titles[0]),
            (f"{key}-b", right, other, kinds[1], titles[1]),
        ]
        named = [subject if kind is ItemKind.MEMORY else None for kind in kinds]
        made = [
            item(name, text, kind=kind, title=title, subject=about, source=f"{kind.value}s", **more)  # type: ignore[arg-type]
            for (name, text, more, kind, title), about in zip(texts, named, strict=True)
        ]
        ids = (made[0].item_id, made[1].item_id)
        return ConflictCase(
            family,
            self.half,
            key,
            ask,
            (*extra, *made),
            ids,
            contradicts,
            ids[0] if decided else None,
        )


def registry_memory(make: _Maker) -> ConflictCase:
    """A metric of the registry against a memory: inclusion, formula, or a table's column."""
    rng = make.rng
    brand, zh, key = make.brand()
    way = rng.choice(("include", "include", "formula", "column"))
    if way == "column":
        table, column = (
            f"{key}_facts",
            rng.choice(("amount", "customer_code", "placed_on", "score")),
        )
        first, second = rng.sample(TYPES, 2)
        text = f"column: {table}.{column}\ntype: {first[0]}"
        name = f"{table}.{column}"
        schema = item(
            name,
            text,
            kind=ItemKind.SCHEMA,
            subject=f"schema:{name}",
            authority=90,
            source="warehouse",
        )
        said = rng.choice(COLUMNS[make.half]).format(
            c=name, t=second[0], w=second[1], z=second[2], f=column, tb=table
        )
        memory = item(f"{key}-m", said, kind=ItemKind.MEMORY, authority=40, source="notes")
        ids = (schema.item_id, memory.item_id)
        return ConflictCase(
            "registry_memory", make.half, key, f"{name} type", (schema, memory), ids, True, ids[0]
        )
    metric, subject = f"{brand} revenue", f"metric:{key}"
    language = rng.choice(("en", "zh"))
    shown = metric if language == "en" else f"{zh}营收"
    if way == "include":
        thing = rng.choice(OBJECTS)
        names = {"m": shown, "o": thing[language == "zh"]}
        registry = rng.choice(INCLUDE["tuned"][language])
        memory_ways = rng.choice(INCLUDE[make.half][language])
        yes = rng.random() < 0.5
        described, said = registry[yes].format(**names), memory_ways[not yes].format(**names)
    else:
        first, second, third = rng.sample(OPERANDS, 3)
        zh_side = language == "zh"
        described = rng.choice(FORMULAS["tuned"][language]).format(
            m=shown, a=first[zh_side], b=second[zh_side]
        )
        said = rng.choice(FORMULAS[make.half][language]).format(
            m=shown, a=first[zh_side], b=third[zh_side]
        )
    text = f"metric: {metric}\nversion: 1\ndescription: {described}\ntable: orders"
    defined = item(
        key, text, kind=ItemKind.METRIC, title=metric, subject=subject, authority=100, source="registry",
        synonyms=(f"{zh}营收",),
    )  # fmt: skip
    about = subject if rng.random() < 0.6 else None
    memory = item(
        f"{key}-m", said, kind=ItemKind.MEMORY, subject=about, authority=40, source="notes"
    )
    ids = (defined.item_id, memory.item_id)
    return ConflictCase(
        "registry_memory",
        make.half,
        key,
        f"{metric} {zh}营收",
        (defined, memory),
        ids,
        True,
        ids[0],
    )


def documents(make: _Maker) -> ConflictCase:
    """Two documents: a term's value, or one sentence with another number or its opposite."""
    rng = make.rng
    way = rng.choice(("term", "sentence", "polar"))
    first, second = _two(rng)
    if way == "term":
        term, name, _, unit, _, key = make.term()
        texts = [
            make.stated("en", name, amount(rng, unit, number, "en")) for number in (first, second)
        ]
        return make.pair("documents", name, (term,), *texts, contradicts=True, key=key)
    brand, zh, key = make.brand()
    titles = ("Questions and answers", "Service terms")
    if way == "polar":
        chosen = rng.choice(POLAR[make.half])
        name = brand if chosen[0].isascii() else zh
        left, right = (text.format(b=name) for text in rng.sample(chosen, 2))
        return make.pair(
            "documents", left, (), left, right, contradicts=True, key=key, titles=titles
        )
    template, unit = rng.choice(SENTENCES[make.half])
    language = "zh" if unit.endswith("_zh") else "en"
    name, unit = (zh if language == "zh" else brand), unit.removesuffix("_zh")
    left, right = (
        template.format(b=name, v=amount(rng, unit, number, language)) for number in (first, second)
    )
    if language == "en":
        right = rng.choice(VARIED[make.half]).format(s=right)
    return make.pair("documents", left, (), left, right, contradicts=True, key=key, titles=titles)


def versions(make: _Maker) -> ConflictCase:
    """Two editions of one page that are both there; the later one wins."""
    rng = make.rng
    first, second = _two(rng)
    term, name, name_zh, unit, subject, key = make.term()
    language = rng.choice(("en", "zh"))
    shown = name if language == "en" else name_zh
    title = "Rules" if language == "en" else "规则"
    made = [
        item(
            f"{key}-v{at}", make.stated(language, shown, amount(rng, unit, number, language)), title=f"{shown} {title} v{at}",
            subject=subject if rng.random() < 0.5 else None, valid_from=NOW - timedelta(days=700 - 300 * at),
            version=str(at), source="pages",
        )
        for at, number in ((1, first), (2, second))
    ]  # fmt: skip
    ids = (made[1].item_id, made[0].item_id)
    return ConflictCase(
        "versions", make.half, key, f"{name} {name_zh}", (term, *made), ids, True, ids[0]
    )


def languages(make: _Maker) -> ConflictCase:
    """An English text against a Chinese one, tied by a glossary term or a metric's synonym."""
    rng = make.rng
    if rng.random() < 0.3:
        brand, zh, key = make.brand()
        thing = rng.choice(OBJECTS)
        yes = rng.random() < 0.5
        metric = item(
            key, f"metric: {brand} revenue\ntable: orders", kind=ItemKind.METRIC, title=f"{brand} revenue",
            subject=f"metric:{key}", authority=100, source="registry", synonyms=(f"{zh}营收",),
        )  # fmt: skip
        left = rng.choice(INCLUDE[make.half]["en"])[yes].format(m=f"{brand} revenue", o=thing[0])
        right = rng.choice(INCLUDE[make.half]["zh"])[not yes].format(m=f"{zh}营收", o=thing[1])
        return make.pair(
            "languages",
            f"{brand} revenue {thing[0]}",
            (metric,),
            left,
            right,
            contradicts=True,
            key=key,
        )
    term, name, name_zh, unit, _, key = make.term()
    first, second = _two(rng)
    left = make.stated("en", name, amount(rng, unit, first, "en"))
    right = make.stated("zh", name_zh, amount(rng, unit, second, "zh"))
    return make.pair(
        "languages", f"{name} {name_zh}", (term,), left, right, contradicts=True, key=key
    )


SCOPES = (
    ("In 2024 the {t} was {v}.", "In 2025 the {t} was {v}."),
    ("For VIP members the {t} is {v}.", "For new members the {t} is {v}."),
    ("The {t} in the East region is {v}.", "The {t} in the West region is {v}."),
    ("The {t} is {v} for electronics.", "The {t} is {v} for groceries."),
    ("The {t} is {v}.", "Until 2024 the {t} was {v}."),
    ("The {t} is {v}.", "The {t} used to be {v}."),
    ("The {t} is {v}.", "If the customer complains, the {t} is {v}."),
    ("The {t} is {v}.", "Should the {t} be {v}?"),
    ("The {t} is at least {v}.", "The {t} is {v} on average."),
)
SCOPES_ZH = (
    ("2024年{t}为{v}。", "2025年{t}为{v}。"),
    ("对于会员，{t}为{v}。", "对于非会员，{t}为{v}。"),
    ("华东区{t}为{v}。", "华北区{t}为{v}。"),
    ("{t}为{v}。", "以前{t}为{v}。"),
)


def negative(make: _Maker) -> ConflictCase:
    """Two texts that do not contradict each other, however alike they look."""
    rng = make.rng
    term, name, name_zh, unit, _, key = make.term()
    first, second = _two(rng)
    way = rng.choice(
        ("same", "same_language", "scope", "scope_zh", "more", "other", "include", "formula")
    )
    if way == "same":
        texts = [make.stated("en", name, amount(rng, unit, first, "en")) for _ in range(2)]
    elif way == "same_language":
        texts = [
            make.stated("en", name, amount(rng, unit, first, "en")),
            make.stated("zh", name_zh, amount(rng, unit, first, "zh")),
        ]
    elif way in ("scope", "scope_zh"):
        chosen, shown, language = (
            (SCOPES, name, "en") if way == "scope" else (SCOPES_ZH, name_zh, "zh")
        )
        pair = rng.choice(chosen)
        texts = [
            text.format(t=shown, v=amount(rng, unit, number, language))
            for text, number in zip(pair, (first, second), strict=True)
        ]
    elif way == "more":
        texts = [make.stated("en", name, amount(rng, unit, first, "en"))]
        texts.append(f"{texts[0]} Requests are answered within {second} hours by the service desk.")
    elif way == "other":
        texts = [
            make.stated("en", name, amount(rng, unit, first, "en")),
            f"The {name} review takes {second} days.",
        ]
    elif way == "include":
        thing, other = rng.sample(OBJECTS, 2)
        texts = [
            rng.choice(INCLUDE[make.half]["en"])[0].format(m=name, o=thing[0]),
            rng.choice(INCLUDE[make.half]["en"])[1].format(m=name, o=other[0]),
        ]
    else:
        a, b = rng.sample(OPERANDS, 2)
        texts = [
            rng.choice(FORMULAS[make.half]["en"]).format(m=name, a=a[0], b=b[0]) for _ in range(2)
        ]
    return make.pair(
        f"no: {way}", f"{name} {name_zh}", (term,), texts[0], texts[1], contradicts=False, key=key
    )


def cases(count: int, seed: int = 7) -> Iterator[ConflictCase]:
    """Yield `count` contradictions of each family and half, and as many pairs that are none in all."""
    makers = {
        "registry_memory": registry_memory,
        "documents": documents,
        "versions": versions,
        "languages": languages,
    }
    halves: tuple[Half, ...] = ("tuned", "held_out", "unseen")
    for half in halves:
        make = _Maker(seed, half)
        for family in FAMILIES:
            for _ in range(count):
                yield makers[family](make)
        for _ in range(count * 2):
            yield negative(make)
