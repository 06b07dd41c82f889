"""Time words: a judged list of phrases in English and Chinese, with those that
must mean nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.security.visibility import micros
from ctx_pipeline.stages.discover.period_fiscal import Calendar
from ctx_pipeline.stages.discover.periods import MAX_PERIODS, named_span, resolve, shown
from testing.period_phrases import PHRASES

MONDAY = micros(datetime(2026, 11, 30, 9, 0, tzinfo=UTC))

ENGLISH = """
GMV last month by region | 2026-10-01 2026-11-01
what did we sell yesterday? | 2026-11-29 2026-11-30
yesterday's orders by channel | 2026-11-29 2026-11-30
today's revenue | 2026-11-30 2026-12-01
what is due tomorrow | 2026-12-01 2026-12-02
the day before yesterday | 2026-11-28 2026-11-29
sales in the last 7 days | 2026-11-24 2026-12-01
last 7-day average | 2026-11-24 2026-12-01
past two weeks of logs | 2026-11-17 2026-12-01
trailing twelve months | 2025-12-01 2026-12-01
errors in the past 24 hours | 2026-11-29T09:00 2026-11-30T09:00
latency over the last 24h | 2026-11-29T09:00 2026-11-30T09:00
churn over the past month | 2026-11-01 2026-12-01
refunds in the last week | 2026-11-24 2026-12-01
refunds last week | 2026-11-23 2026-11-30
the week before last | 2026-11-16 2026-11-23
this week so far | 2026-11-30 2026-12-01
this month | 2026-11-01 2026-12-01
this quarter | 2026-10-01 2027-01-01
last quarter's margin | 2026-07-01 2026-10-01
next quarter | 2027-01-01 2027-04-01
this year | 2026-01-01 2027-01-01
last year | 2025-01-01 2026-01-01
next 2 weeks | 2026-12-01 2026-12-15
this year so far | 2026-01-01 2026-12-01
YTD revenue | 2026-01-01 2026-12-01
month-to-date spend | 2026-11-01 2026-12-01
so far this quarter | 2026-10-01 2026-12-01
since the beginning of the year | 2026-01-01 2026-12-01
since March | 2026-03-01 2026-12-01
since last week | 2026-11-23 2026-12-01
since 2024 | 2024-01-01 2026-12-01
since 2026-06-15 | 2026-06-15 2026-12-01
orders from Nov 1 on | 2026-11-01 2026-12-01
after Q2 2026 | 2026-07-01 2026-12-01
revenue in Q3 | 2026-07-01 2026-10-01
compare Q3 with Q2 2026 | 2026-07-01 2026-10-01, 2026-04-01 2026-07-01
Q3 last year | 2025-07-01 2025-10-01
last year's Q3 | 2025-07-01 2025-10-01
third quarter of 2025 | 2025-07-01 2025-10-01
2026Q2 report | 2026-04-01 2026-07-01
first half of 2026 | 2026-01-01 2026-07-01
last year's second half | 2025-07-01 2026-01-01
H1 2025 | 2025-01-01 2025-07-01
January revenue | 2026-01-01 2026-02-01
returns in December | 2025-12-01 2026-01-01
in May | 2026-05-01 2026-06-01
May 2026 | 2026-05-01 2026-06-01
last March | 2026-03-01 2026-04-01
March to May 2026 | 2026-03-01 2026-06-01
Jan-Mar 2026 | 2026-01-01 2026-04-01
from November 2025 to January 2026 | 2025-11-01 2026-02-01
from 2026-01-01 to 2026-03-31 | 2026-01-01 2026-04-01
between 2024 and 2025 | 2024-01-01 2026-01-01
partition dt=2026-11-08 is late | 2026-11-08 2026-11-09
3 March 2026 | 2026-03-03 2026-03-04
March 3rd, 2026 | 2026-03-03 2026-03-04
Jan 1-15, 2026 | 2026-01-01 2026-01-16
top 10 customers in 2025 | 2025-01-01 2026-01-01
last Friday | 2026-11-27 2026-11-28
3 days ago | 2026-11-27 2026-11-28
last month vs the same month last year | 2026-10-01 2026-11-01, 2025-10-01 2025-11-01
compare March with the previous month | 2026-03-01 2026-04-01, 2026-02-01 2026-03-01
previous month | 2026-10-01 2026-11-01
it may be slow |
May I see the schema? |
this may not work |
march on and may the force be with you |
March on the capital |
March Simpson signed it |
a second opinion |
give me a second |
the second item |
every second order |
August Miller's team |
last but not least |
the last time it failed |
the last 5 orders |
a last-minute change |
next step, please |
next of kin |
this time it works |
error code 2025 |
the limit is 2000 |
in 2000 rows |
top 2024 customers |
FY2026 Q3 |
fiscal year 2026 |
Q1: what is GMV? |
the second half of the match |
end of last month |
the last week of March |
early March |
before March 2026 |
until 2026-03-31 |
by March |
USA Today |
show gross margin by customer segment |
sorted by decimal places |
version 2026.10.1 |
id 550e8400-2026-41d4 |
the same period last year |
this time last year |
every March |
within 30 days of purchase |
30 days |
"""

CHINESE = """
上个月各地区成交总额 | 2026-10-01 2026-11-01
上月同比增长多少 | 2026-10-01 2026-11-01
昨天的订单 | 2026-11-29 2026-11-30
昨日退款率 | 2026-11-29 2026-11-30
今天有多少新客 | 2026-11-30 2026-12-01
前天 | 2026-11-28 2026-11-29
大前天 | 2026-11-27 2026-11-28
明天的计划 | 2026-12-01 2026-12-02
近7天订单 | 2026-11-24 2026-12-01
最近30天的活跃用户 | 2026-11-01 2026-12-01
过去三个月的毛利 | 2026-09-01 2026-12-01
最近两周 | 2026-11-17 2026-12-01
近半年趋势 | 2026-06-01 2026-12-01
近一年复购率 | 2025-12-01 2026-12-01
最近24小时报错 | 2026-11-29T09:00 2026-11-30T09:00
未来7天的排期 | 2026-12-01 2026-12-08
本周销售 | 2026-11-30 2026-12-07
上周退货 | 2026-11-23 2026-11-30
上上周 | 2026-11-16 2026-11-23
下周一 | 2026-12-07 2026-12-08
上周五的报表 | 2026-11-27 2026-11-28
上周末客流 | 2026-11-28 2026-11-30
星期三之前先看上星期三 | 2026-11-25 2026-11-26
本月 | 2026-11-01 2026-12-01
这个月的目标 | 2026-11-01 2026-12-01
下个月 | 2026-12-01 2027-01-01
上上个月 | 2026-09-01 2026-10-01
本季度 | 2026-10-01 2027-01-01
上季度毛利率 | 2026-07-01 2026-10-01
上个季度 | 2026-07-01 2026-10-01
今年 | 2026-01-01 2027-01-01
去年销售额 | 2025-01-01 2026-01-01
前年 | 2024-01-01 2025-01-01
明年预算 | 2027-01-01 2028-01-01
去年三季度 | 2025-07-01 2025-10-01
去年第三季度的毛利 | 2025-07-01 2025-10-01
今年上半年 | 2026-01-01 2026-07-01
去年下半年 | 2025-07-01 2026-01-01
上半年总结 | 2026-01-01 2026-07-01
第三季度 | 2026-07-01 2026-10-01
Q3环比 | 2026-07-01 2026-10-01
2026年Q2 | 2026-04-01 2026-07-01
今年前三季度 | 2026-01-01 2026-10-01
2025年 | 2025-01-01 2026-01-01
2026年3月 | 2026-03-01 2026-04-01
2026年3月到5月 | 2026-03-01 2026-06-01
2025年11月至2026年1月 | 2025-11-01 2026-02-01
2026年3月15日 | 2026-03-15 2026-03-16
10月1日到7日 | 2026-10-01 2026-10-08
11月11号的成交 | 2026-11-11 2026-11-12
1-3月合计 | 2026-01-01 2026-04-01
二〇二五年十二月 | 2025-12-01 2026-01-01
一月的退款 | 2026-01-01 2026-02-01
十二月份 | 2025-12-01 2026-01-01
三月份以来 | 2026-03-01 2026-12-01
今年以来 | 2026-01-01 2026-12-01
年初至今 | 2026-01-01 2026-12-01
本季度至今 | 2026-10-01 2026-12-01
2024年以来 | 2024-01-01 2026-12-01
从2026-06-15到2026-06-20 | 2026-06-15 2026-06-21
上个月与去年同期相比 | 2026-10-01 2026-11-01, 2025-10-01 2025-11-01
上个月前十大客户 | 2026-10-01 2026-11-01
3天前的数据 | 2026-11-27 2026-11-28
对比一季度和二季度 | 2026-01-01 2026-04-01, 2026-04-01 2026-07-01
一个月内可以退款 |
一个月 |
三个月 |
7天无理由退货 |
第二个问题 |
等一秒 |
线上月活 |
线上周活怎么算 |
版本月度说明 |
成本月报 |
资本年报 |
以上年份 |
以下月份 |
附近7天酒店 |
接近30天 |
上月球 |
中秋月饼 |
五月天演唱会 |
每月1日对账 |
每年3月 |
每天 |
按月汇总 |
上周期 |
这周边的门店 |
本年级 |
半年度总结 |
十五日 |
3月底 |
上月底 |
去年年初 |
3月之前 |
截至3月 |
到期3天前提醒 |
最近的订单 |
最近一次登录 |
四季如春 |
两个季度 |
第一年级 |
90年代 |
一月一次 |
日期格式 |
去年同期 |
同比是什么意思 |
月均和年均 |
"""


def cases(listed: str) -> list[tuple[str, list[str]]]:
    pairs = (line.rsplit("|", 1) for line in listed.strip().splitlines())
    return [
        (text.strip(), [part.strip() for part in wanted.split(",") if part.strip()])
        for text, wanted in pairs
    ]


def moment(value: datetime) -> str:
    return value.strftime("%Y-%m-%d" if (value.hour, value.minute) == (0, 0) else "%Y-%m-%dT%H:%M")


@pytest.mark.parametrize(("text", "wanted"), [*cases(ENGLISH), *cases(CHINESE)])
def test_time_words_mean_what_people_mean_by_them(text: str, wanted: list[str]):
    found = resolve(text, MONDAY)
    assert [f"{moment(period.start)} {moment(period.end)}" for period in found] == wanted
    assert all(period.text in text for period in found)


def test_the_list_has_sixty_phrases_in_each_language_and_ones_that_mean_nothing():
    for listed in (ENGLISH, CHINESE):
        meaning = [wanted for _, wanted in cases(listed)]
        assert sum(map(bool, meaning)) >= 60
        assert sum(not wanted for wanted in meaning) >= 30


def test_the_last_day_of_a_month_and_a_leap_day_do_not_move_a_period():
    leap = micros(datetime(2028, 2, 29, 12, 0, tzinfo=UTC))
    texts = ("last month", "last year", "last 12 months", "去年二月", "2月29日")
    found = [resolve(text, leap)[0] for text in texts]
    assert [f"{moment(period.start)} {moment(period.end)}" for period in found] == [
        "2028-01-01 2028-02-01",
        "2027-01-01 2028-01-01",
        "2027-03-01 2028-03-01",
        "2027-02-01 2027-03-01",
        "2028-02-29 2028-03-01",
    ]
    assert resolve("2027年2月29日", leap) == ()


def test_what_the_model_is_told_names_today_and_the_end_as_exclusive():
    assert shown(resolve("GMV last month", MONDAY), MONDAY) == (
        'Today is 2026-11-30. In UTC, end exclusive:\n"last month" = 2026-10-01 .. 2026-11-01'
    )


@pytest.mark.parametrize(
    "text", ["last month", "yesterday", "from March to May", "上个月", "去年三季度到今年"]
)
@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31T23:59:59"])
def test_a_clock_at_the_end_of_the_calendar_refuses_no_request(text: str, day: str):
    at = micros(datetime.fromisoformat(day).replace(tzinfo=UTC))
    assert all(period.start < period.end for period in resolve(text, at))


def test_a_title_is_about_the_one_time_that_it_names_with_its_year():
    assert named_span("Board report 2026-10") == (
        micros(datetime(2026, 10, 1, tzinfo=UTC)),
        micros(datetime(2026, 11, 1, tzinfo=UTC)),
    )
    assert named_span("2026年10月经营月报") == named_span("Board report 2026-10")
    assert named_span("orders/dt=2026-10-05") is not None
    for title in ("October report", "last month", "2026-10 and 2026-11", "Refunds", "error 2026"):
        assert named_span(title) is None


@given(
    st.text(
        st.sampled_from(
            list(
                "last nexthismoyear "
                "weekqurtdagof0123456789-/,'上下个本今去年月日周天季度第一二三四十到至近前后Qq"
            )
        ),
        max_size=40,
    ),
    st.integers(0, 4_000_000_000_000_000),
)
def test_whatever_a_text_says_its_periods_begin_before_they_end(text: str, at: int):
    found = resolve(text, at)
    assert len(found) <= MAX_PERIODS
    assert all(period.start < period.end and period.text in text for period in found)


@pytest.mark.parametrize(
    "text",
    [
        "deploy app:2025-10-01 again",
        "image registry.example/app:2025-10 is broken",
        "镜像 app:2025-10-01 有问题",
        "nginx:2025-10-01 and app2:2025",
    ],
)
def test_a_date_that_a_colon_ties_to_a_name_is_its_tag(text: str):
    assert resolve(text, MONDAY) == ()


@pytest.mark.parametrize(
    "text",
    ["date:2025-10-01", "from:2025-10-01 to:2025-10-01", "orders: 2025-10-01", "日期:2025-10-01"],
)
def test_a_date_after_a_word_of_time_or_a_blank_is_a_period(text: str):
    assert {moment(period.start) for period in resolve(text, MONDAY)} == {"2025-10-01"}


@pytest.mark.parametrize("line", PHRASES.strip().splitlines())
def test_a_phrase_means_all_of_what_it_says_or_nothing(line: str):
    text, _, wanted = line.partition(" | ")
    found = [f"{moment(p.start)} {moment(p.end)}" for p in resolve(text, MONDAY)]
    assert (", ".join(found) or "nothing") == wanted


FISCAL = """
上财年四季度的收入 | 2026-01-01 2026-04-01
FY2026第一季度 | 2025-04-01 2025-07-01
2026财年的毛利 | 2025-04-01 2026-04-01
本财年利润 | 2026-04-01 2027-04-01
本财年至今 | 2026-04-01 2026-12-01
上个财季的回款 | 2026-07-01 2026-10-01
财年2026年Q3 | 2025-10-01 2026-01-01
FY26 Q2 revenue | 2025-07-01 2025-10-01
Q3 of fiscal 2026 | 2025-10-01 2026-01-01
fiscal Q1 2027 | 2026-04-01 2026-07-01
last fiscal year | 2025-04-01 2026-04-01
this fiscal quarter | 2026-10-01 2027-01-01
fiscal year to date | 2026-04-01 2026-12-01
FY25 H1 against last month | 2024-04-01 2024-10-01, 2026-10-01 2026-11-01
FY25 H1, and last month | 2024-04-01 2024-10-01, 2026-10-01 2026-11-01
fiscal planning for last month | nothing
"""


@pytest.mark.parametrize("line", FISCAL.strip().splitlines())
def test_fiscal_periods_resolve_where_a_project_says_when_its_years_start(line: str):
    text, _, wanted = line.partition(" | ")
    found = resolve(text, MONDAY, Calendar(fiscal_start=(4, 1)))
    assert (", ".join(f"{moment(p.start)} {moment(p.end)}" for p in found) or "nothing") == wanted


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("last week", "2026-11-22"),
        ("上周", "2026-11-22"),
        ("本周日", "2026-11-29"),
        ("上周一到周五", "2026-11-23"),
        ("this Sunday", "2026-11-29"),
        ("week 40 of 2025", "2025-09-29"),
    ],
)
def test_weeks_start_on_the_day_that_a_project_says(text: str, start: str):
    (period,) = resolve(text, MONDAY, Calendar(first_weekday=6))
    assert moment(period.start) == start
