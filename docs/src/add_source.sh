# A second folder of documents. Runs on the project of the tutorial.

#: home quiet
cd shop

#: write
mkdir runbooks
cat > runbooks/late-orders.md <<'END'
---
title: Late orders
version: "1"
valid_from: 2026-10-01T00:00:00Z
groups: [analysts]
---

# Late orders

Orders of a stopped warehouse are entered when it runs again. Wait two days before you report a daily figure.
END
cat > runbooks/close-of-day.md <<'END'
# Close of day

The day closes at 02:00 in Shanghai. Figures of a day are final one hour later.
END

#: settings
cat >> ctx.toml <<'END'

[[sources]]
name = "runbooks"
kind = "documents"
path = "runbooks"
authority = 50
trust = "enterprise_trusted"
sensitivity = "internal"
groups = ["*"]
freshness = "30d"
owner = "operations"
END

#: build
ctx build --select 'sources/runbooks+'
# > [1/8] sources/runbooks
# > [2/8] stages/discovered_items
# > [3/8] stages/filtered_items
# > [4/8] stages/ranked_items
# > [5/8] stages/transformed_items
# > [6/8] stages/budgeted_items
# > [7/8] stages/assembled_items
# > [8/8] stages/context_snapshots
# > Sources
# > source    kind       items  added  reused  retired  files  errors
# > runbooks  documents      2      2       0        0      2       0
# >
# > 14 live items, 2 embedded, 0 reused, 0 retired in 2.8 s
# > artifact fa91148b2c41a8665380b901fd6e4c2afb2ae205b05b660ff6d4c92e274ab1fb

#: ask head=8
ctx assemble "orders of a stopped warehouse are missing" --at 2026-11-30T00:00:00Z
# > In the pack: 4 items, 2 tools
# > section       item                                version       shown   tokens  why in
# > instructions  instruction:policies/AGENTS.md      e2ba1c50e610  full       115  score 0.70
# > task          task:request/task                   8121ab3ccb84  full        45  protected
# > state         state:request/scope                 6dfdc4f2074b  full        65  protected
# > evidence      document:runbooks/late-orders.md#1  1             full        72  score 1.44
# > tools         tool:tools/orders_search            7a6e570a9ae8  schema     109  score 0.91
# > tools         tool:tools/refund_create            a0a6bc161696  schema      92  score 0.96
# > …

#: broken tail=7
cat > runbooks/broken.md <<'END'
---
valid_from: 2026-10-01 08:00
---
Times without a zone are refused.
END
ctx build --select 'sources/runbooks+' --strict
# > …
# > runbooks  documents      2      0       2        0      3       1
# >
# > Not loaded: 1; everything else is
# >   runbooks/broken.md:2 naive_time: valid_from: has no zone: write it with an offset, as 2026-01-31T00:00:00Z
# >
# > 14 live items, 0 embedded, 2 reused, 0 retired in 2.6 s
# > artifact fa91148b2c41a8665380b901fd6e4c2afb2ae205b05b660ff6d4c92e274ab1fb

#: remove tail=6
rm runbooks/broken.md runbooks/late-orders.md
ctx build --select 'sources/runbooks+'
# > …
# > Sources
# > source    kind       items  added  reused  retired  files  errors
# > runbooks  documents      1      0       1        1      1       0
# >
# > 13 live items, 0 embedded, 1 reused, 1 retired in 2.5 s
# > artifact 8dea621e0428d7608a2f7ec3ef96f61f208329d0219866e89f398c4e65ad2280
ctx why-not 'document:runbooks/late-orders.md#1'
# > item                                version  to you  reason
# > document:runbooks/late-orders.md#1  1        hidden  retired
# >
# > No version is visible to you now
# >   ctx items history 'document:runbooks/late-orders.md#1'
