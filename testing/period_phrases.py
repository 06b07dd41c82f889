"""Phrases with the periods that they stand for on 2026-11-30, a Monday; `nothing` where a period
would be a guess.
"""

from __future__ import annotations

from typing import Final

PHRASES: Final = """
25年四季度的GMV | 2025-10-01 2026-01-01
25年三月的退款 | 2025-03-01 2025-04-01
24年的收入 | nothing
24年上半年毛利 | 2024-01-01 2024-07-01
'25年双十一 | nothing
25年Q3的复购率 | 2025-07-01 2025-10-01
Q3'25新增用户 | 2025-07-01 2025-10-01
revenue in Q4'25 | 2025-10-01 2026-01-01
revenue in Q4 25 | 2025-10-01 2026-01-01
Q4’25 revenue | 2025-10-01 2026-01-01
margin in Q1-26 | 2026-01-01 2026-04-01
churn in 4Q25 | 2025-10-01 2026-01-01
orders in Mar '25 | 2025-03-01 2025-04-01
H1'25 results | 2025-01-01 2025-07-01
1H25 results | 2025-01-01 2025-07-01
上财年四季度 | nothing
FY2026第一季度 | nothing
2025财年的收入 | nothing
本财年利润 | nothing
财年2025年Q3 | nothing
财务年度2025 | nothing
FY26 Q2 revenue | nothing
fiscal 2025 revenue | nothing
Q3 of fiscal 2025 | nothing
last fiscal year | nothing
fiscal year to date | nothing
2025 fiscal year | nothing
Q2 FY25 margin | nothing
下下周的排班 | 2026-12-14 2026-12-21
上上上周 | 2026-11-09 2026-11-16
上上周 | 2026-11-16 2026-11-23
下下个月 | 2027-01-01 2027-02-01
上上个季度 | 2026-04-01 2026-07-01
下下周三 | 2026-12-16 2026-12-17
前前年的销售额 | nothing
大前年的销售额 | 2023-01-01 2024-01-01
大后天发货 | 2026-12-03 2026-12-04
the month after next | 2027-01-01 2027-02-01
the week after next | 2026-12-14 2026-12-21
the quarter before last | 2026-04-01 2026-07-01
the month before last | 2026-09-01 2026-10-01
two weeks before last | nothing
上周一到周五 | 2026-11-23 2026-11-28
上周三至周日的订单 | 2026-11-25 2026-11-30
下周一到周三 | 2026-12-07 2026-12-10
from last Monday to Friday | 2026-11-23 2026-11-28
last Tuesday through Thursday | 2026-11-24 2026-11-27
3月到5月 | 2026-03-01 2026-06-01
2025年3月到5月 | 2025-03-01 2025-06-01
去年3月到5月 | 2025-03-01 2025-06-01
11月到次年1月 | nothing
2025年11月到2026年1月 | 2025-11-01 2026-02-01
Jan-Mar 2025 | 2025-01-01 2025-04-01
Q1 to Q3 2025 | 2025-01-01 2025-10-01
2025年一季度到三季度 | 2025-01-01 2025-10-01
去年今天 | 2025-11-30 2025-12-01
去年今日的订单 | 2025-11-30 2025-12-01
去年的今天 | 2025-11-30 2025-12-01
a year ago today | 2025-11-30 2025-12-01
one year ago today | 2025-11-30 2025-12-01
two years ago today | 2024-11-30 2024-12-01
this day last year | 2025-11-30 2025-12-01
today last year | 2025-11-30 2025-12-01
yesterday last year | nothing
去年昨天 | nothing
a week ago today | 2026-11-23 2026-11-24
this month last year | 2025-11-01 2025-12-01
this quarter last year | 2025-10-01 2026-01-01
this week last year | nothing
去年这个月 | 2025-11-01 2025-12-01
去年本月的退款率 | 2025-11-01 2025-12-01
去年这个季度 | 2025-10-01 2026-01-01
去年上个月 | nothing
本月和去年同期 | 2026-11-01 2026-12-01, 2025-11-01 2025-12-01
去年同期的数据 | nothing
2025年第40周 | 2025-09-29 2025-10-06
2025年40周的销量 | 2025-09-29 2025-10-06
week 40 of 2025 | 2025-09-29 2025-10-06
2025-W40 | 2025-09-29 2025-10-06
2025W40 sales | 2025-09-29 2025-10-06
sales in CW40 2025 | nothing
week 40, 2025 | 2025-09-29 2025-10-06
week 54 of 2025 | nothing
第40周的销量 | nothing
week 40 | nothing
2025年第二周 | 2025-01-06 2025-01-13
the year ended March 2026 | 2025-04-01 2026-04-01
the twelve months ended June 2026 | 2025-07-01 2026-07-01
for the quarter ended September 2026 | 2026-07-01 2026-10-01
the year ending 31 March 2026 | 2025-04-01 2026-04-01
截至2026年3月的年度 | nothing
截至2026年3月 | nothing
截至上月底的库存 | nothing
截止2025年底 | nothing
up to March 2026 | nothing
usage of model gpt-4o-2024-08-06 | nothing
status of invoice INV-2025-09 | nothing
claude-3-5-sonnet-2024-10-22 的价格 | nothing
open logs/2025/09/app.log | nothing
/data/2025-10/orders.parquet | nothing
订单号 20251001-0093 的状态 | nothing
合同 HT-2025-03-018 | nothing
version 2025.10.1 of the app | nothing
python 3.12 in release v2025-09 | nothing
build 2025-09-rc1 failed | nothing
order 2025-1234 | nothing
RFC-2025-11 feedback | nothing
文件 report_2025-09.xlsx | nothing
report-2025Q3.pdf | nothing
branch release/2025-10 | nothing
JIRA-2025 的进展 | nothing
GB/T 2025-2019 标准 | nothing
工单2025年号段 | nothing
三天两头出问题 | nothing
一年一度的大促 | nothing
跨年活动方案 | nothing
the second quarter of the film | nothing
a quarter of users | nothing
24年老店 | nothing
25年工龄的员工 | nothing
工作25年的人 | nothing
近25年的数据 | 2001-12-01 2026-12-01
过去3年 | 2023-12-01 2026-12-01
12月25日 | 2025-12-25 2025-12-26
2026/11/01 的日志 | 2026-11-01 2026-11-02
最近一周 | 2026-11-24 2026-12-01
本周末 | 2026-12-05 2026-12-07
weekend before last | nothing
Q3 last year versus Q3 this year | 2025-07-01 2025-10-01, 2026-07-01 2026-10-01
23年底的库存 | nothing
24年1-3月的订单 | 2024-01-01 2024-04-01
25年11月11日的GMV | 2025-11-11 2025-11-12
24年全年营收 | nothing
Q2’24 vs Q2’25 | 2024-04-01 2024-07-01, 2025-04-01 2025-07-01
sales Q1 24 vs Q1 25 | 2024-01-01 2024-04-01, 2025-01-01 2025-04-01
2H24 guidance | 2024-07-01 2025-01-01
top Q3 20 customers | nothing
下下下周的计划 | 2026-12-21 2026-12-28
上上月的账单 | 2026-09-01 2026-10-01
上上周五 | 2026-11-20 2026-11-21
上周五到今天 | 2026-11-27 2026-12-01
from last Friday to yesterday | 2026-11-27 2026-11-30
本周一至周三 | 2026-11-30 2026-12-03
从去年10月到今年3月 | 2025-10-01 2026-04-01
April through June 2025 | 2025-04-01 2025-07-01
2025年10月1日至7日 | 2025-10-01 2025-10-08
three months ago today | 2026-08-30 2026-08-31
前年今天 | 2024-11-30 2024-12-01
上个月今天 | 2026-10-30 2026-10-31
this quarter of last year | 2025-10-01 2026-01-01
去年第3周的访问量 | 2025-01-13 2025-01-20
W12 2026 | 2026-03-16 2026-03-23
year ended 30 June 2025 | 2024-07-01 2025-07-01
six months ended Dec 2025 | 2025-07-01 2026-01-01
as of March 2026 | nothing
截至2025年12月31日 | nothing
会计年度2025的利润 | nothing
本财季 | nothing
claude-opus-4-20250514 latency | nothing
PO-2025-08-17 status | nothing
file s3://bucket/2025/10/01/x | nothing
订单编号2025-0912 | nothing
提交 a1b2-2025-03-04 | nothing
CVE-2025-1234 | nothing
ISO 8601 week | nothing
release 2025.3 notes | nothing
热销2025款手机 | nothing
截图20251130.png | nothing
"""
