"""Amounts in other words: equal ones never contradict each other, different ones do, vague ones
claim nothing.
"""

from __future__ import annotations

import pytest

from ctx_pipeline.claims.extract import claims_of
from tests.claims.test_claims import contested, document

EQUAL = [
    ("1h30m", "90 minutes"),
    ("1 hour and 30 minutes", "90 minutes"),
    ("an hour and a half", "90 minutes"),
    ("two and a half hours", "150 minutes"),
    ("half an hour", "30 minutes"),
    ("a quarter of an hour", "15 minutes"),
    ("one and a half years", "18 months"),
    ("a year and a half", "18 months"),
    ("half a year", "6 months"),
    ("minus 5 degrees", "-5 degrees"),
    ("negative five degrees", "-5 degrees"),
    ("half a dozen units", "6 units"),
    ("two dozen units", "24 units"),
    ("1.5 km", "1500 m"),
    ("2.5 kg", "2,500 grams"),
    ("1.5 million dollars", "$1,500,000"),
    ("$1.5M", "1,500,000 dollars"),
    ("250k", "250,000"),
    ("5‰", "0.5%"),
    ("two weeks", "14 days"),
    ("7-8 days", "8 days"),
    ("seven or eight days", "8 days"),
    ("2 GB", "2048 MB"),
    ("a fortnight", "14 days"),
    ("一年半", "18个月"),
    ("半年", "6个月"),
    ("1年6个月", "18个月"),
    ("七八天", "8天"),
    ("3、4天", "4天"),
    ("一个半小时", "90分钟"),
    ("两小时一刻", "135分钟"),
    ("一刻钟", "15分钟"),
    ("三成", "30%"),
    ("三成半", "35%"),
    ("1.5亿元", "15000万元"),
    ("一万二千元", "12,000元"),
    ("零下5度", "-5度"),
    ("2公里", "2000米"),
    ("三斤", "1.5公斤"),
    ("俩人", "2人"),
    ("$2,500.00", "2.5k USD"),
    ("2 hours, 15 minutes", "135 minutes"),
    ("three quarters of an hour", "45 minutes"),
    ("1½ hours", "90 minutes"),
    ("1 1/2 hours", "1.5 hours"),
    ("2h", "120 min"),
    ("between 7 and 8 days", "8 days"),
    ("from 7 to 8 days", "7 days"),
    ("3 to 4 million dollars", "3.5 million dollars"),
    ("one million", "1,000,000"),
    ("twelve hundred", "1200"),
    ("one third", "33%"),
    ("三分之一", "33.3%"),
    ("60 km/h", "1 km per minute"),
    ("$5 a month", "$60 per year"),
    ("5 degrees below zero", "−5°C"),
    ("1 dozen", "12"),
    ("a dozen", "12"),
    ("一小时三十分", "90分钟"),
    ("1小时30分钟", "1.5小时"),
    ("两个半月", "2.5个月"),
    ("三到五天", "4天"),
    ("3至5天", "3-5天"),
    ("半个小时", "30分钟"),
    ("两周", "14天"),
    ("一万二", "12000"),
    ("3万5千元", "35,000元"),
    ("2千万元", "两千万元"),
    ("1.2亿", "12000万"),
    ("5元5角", "5.5元"),
    ("千分之五", "0.5%"),
    ("百分之三十五", "三成半"),
    ("十分之一", "10%"),
    ("1米75厘米", "175厘米"),
    ("2吨", "2000公斤"),
    ("两打", "24"),
    ("零下三度", "-3℃"),
    ("每月5元", "5元/月"),
    ("俩月", "2个月"),
    ("一年零三个月", "15个月"),
    ("两天半", "60小时"),
    ("二十四小时", "一天"),
    ("三个季度", "9个月"),
    ("three quarters", "9 months"),
    ("90 to 120 minutes", "1.5 to 2 hours"),
    ("5 hundred", "500"),
    ("2.5 thousand units", "2,500 units"),
    ("一个星期", "7天"),
    ("一个半星期", "10.5天"),
    ("３０天", "三十天"),
    ("一百零五", "105"),
    ("一百五", "150"),
    ("2500", "两千五"),
    ("zero point five percent", "0.5%"),
    ("half a percent", "0.5%"),
    ("50 basis points", "0.5 percentage points"),
    ("1 year and 6 months", "eighteen months"),
    ("36 hours", "one and a half days"),
    ("a day and a half", "36 hours"),
    ("four weeks", "28 days"),
    ("2.5 kg", "2.5 kilograms"),
]
DIFFERENT = [
    ("1h30m", "80 minutes"),
    ("2 hours and 15 minutes", "3 hours"),
    ("two and a half hours", "3 hours"),
    ("a year and a half", "24 months"),
    ("half a year", "12 months"),
    ("two years", "18 months"),
    ("minus 5 degrees", "5 degrees"),
    ("-5 degrees", "-15 degrees"),
    ("half a dozen units", "12 units"),
    ("two dozen units", "12 units"),
    ("1.5 km", "500 m"),
    ("2.5 kg", "250 grams"),
    ("$1.5M", "$150,000"),
    ("250k", "25,000"),
    ("5‰", "5%"),
    ("two weeks", "10 days"),
    ("30 days", "14 days"),
    ("7-8 days", "14 days"),
    ("2 GB", "4 GB"),
    ("twenty-one", "20"),
    ("一年半", "24个月"),
    ("半年", "1年"),
    ("1年6个月", "12个月"),
    ("三年", "两年"),
    ("七八天", "15天"),
    ("8天", "18天"),
    ("一个半小时", "60分钟"),
    ("半小时", "半天"),
    ("一刻钟", "30分钟"),
    ("三成", "13%"),
    ("三成半", "30%"),
    ("百分之三", "5%"),
    ("1.5亿元", "1500万元"),
    ("一万二千元", "1200元"),
    ("零下5度", "5度"),
    ("2公里", "200米"),
    ("三斤", "3公斤"),
    ("俩人", "3人"),
    ("三十天", "二十天"),
    ("2 hours, 15 minutes", "2 hours, 45 minutes"),
    ("24 months", "23 months"),
    ("1½ hours", "2.5 hours"),
    ("from 7 to 8 days", "10 days"),
    ("3 to 4 million dollars", "5 million dollars"),
    ("$5 a month", "$50 per year"),
    ("60 km/h", "90 km/h"),
    ("一小时三十分", "60分钟"),
    ("两个半月", "2个月"),
    ("三到五天", "7天"),
    ("3万5千元", "30,000元"),
    ("5元5角", "5元"),
    ("千分之五", "5%"),
    ("1米75厘米", "1米"),
    ("2吨", "200公斤"),
    ("两打", "20"),
    ("每月5元", "每月8元"),
    ("一年零三个月", "13个月"),
    ("两天半", "2天"),
    ("四十八小时", "一天"),
    ("90 to 120 minutes", "2 to 3 hours"),
    ("50 basis points", "5 percentage points"),
    ("a day and a half", "24 hours"),
    ("30天", "四十天"),
    ("十七八天", "7天"),
    ("zero point five percent", "5%"),
]
VAGUE = [
    "about 30 days",
    "30 days or so",
    "several days",
    "30-odd days",
    "a couple of days",
    "30+ days",
    "roughly 5 km",
    "dozens",
    "十天左右",
    "十几天",
    "三十多天",
    "约30天",
    "好几天",
    "几十天",
    "上百元",
    "30余天",
    "数十人",
    "二十来天",
]


def stated(amount: str) -> str:
    return (
        f"商品的限额为{amount}。"
        if any("\u3400" <= char <= "\u9fff" for char in amount)
        else f"The limit of goods is {amount}."
    )


@pytest.mark.parametrize(("left", "right"), EQUAL)
def test_one_amount_in_other_words_is_no_contradiction(left: str, right: str):
    pair = document("a", stated(left), subject="x:y"), document("b", stated(right), subject="x:y")
    assert contested(*pair) == [0, 0]


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_two_amounts_contradict_each_other_however_they_are_written(left: str, right: str):
    pair = document("a", stated(left), subject="x:y"), document("b", stated(right), subject="x:y")
    assert contested(*pair) == [1, 1]


@pytest.mark.parametrize("amount", VAGUE)
def test_an_amount_that_is_not_said_exactly_claims_nothing(amount: str):
    claims = claims_of(document("a", stated(amount), subject="x:y"))
    assert [claim.value for claim in claims if claim.attribute.startswith("quantity:")] == []


@pytest.mark.parametrize(
    "text",
    [
        "host 10.251.194.213 is slow",
        "三点半开会",
        "in 2024-2025",
        "the 5G network",
        "call 021 259 903",
        "A4-5 days",
        "3月5日",
        "第三十天",
    ],
)
def test_numbers_of_names_addresses_and_times_are_no_amounts(text: str):
    claims = claims_of(document("a", text, subject="x:y"))
    assert [claim.value for claim in claims if claim.attribute.startswith("quantity:")] == []
