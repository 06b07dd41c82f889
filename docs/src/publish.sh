# A new version of a metric, from the draft to what agents see. Runs on the project of the tutorial.

#: home quiet
cd shop

#: reused tail=8
sed "s/<> 'refunded'/= 'paid'/" semantic/metrics/gmv.yaml > gmv.yaml
ctx publish --check gmv.yaml
# > 1 error
# > Findings
# >   warning semantic/metrics/gmv.yaml not_checked: tables and columns are not checked: no schema source of tenant 'acme' has been read
# >     fix: add a source of kind schema_metadata or sql for this tenant, and run `ctx build`
# >   error semantic/metrics/gmv.yaml:14 version_reused: metric:registry/gmv changed under version 2; raise the version. The stored definition stays
# >     fix: raise the version of the definition that changed
# >
# > Registry registry: 0 added, 0 changed, 0 removed, 1 unchanged
# > Checked; nothing was written

#: draft
cat > gmv.yaml <<'END'
metrics:
  - name: gmv
    version: 3
    valid_from: 2026-02-01T00:00:00Z
    description: Gross merchandise value, paid orders alone
    synonyms: [成交总额, gross merchandise value]
    owner: finance-data
    table: orders
    expression: sum(amount) filter (where status = 'paid')
    time_column: ordered_at
    dimensions: [region, category, channel]
    unit: CNY
END

#: check
ctx publish --check gmv.yaml
# > Findings
# >   warning semantic/metrics/gmv.yaml not_checked: tables and columns are not checked: no schema source of tenant 'acme' has been read
# >     fix: add a source of kind schema_metadata or sql for this tenant, and run `ctx build`
# >
# > Definitions
# > change   definition           from  to  effective             fields                                        dependents  shown in
# > changed  metric:registry/gmv  2     3   2026-12-01 05:00:09Z  version, description, expression, valid_from           0         1
# >
# > metric:registry/gmv (changed)
# >   --- metric:registry/gmv@2
# >   +++ metric:registry/gmv@3
# >   @@ -1,5 +1,5 @@
# >    metric: gmv
# >   -version: 2
# >   -description: Gross merchandise value, refunded orders excluded
# >   -expression: sum(amount) filter (where status <> 'refunded')
# >   +version: 3
# >   +description: Gross merchandise value, paid orders alone
# >   +expression: sum(amount) filter (where status = 'paid')
# >    table: orders
# >   @@ -9,2 +9,2 @@
# >    owner: finance-data
# >   -valid_from: 2026-01-01T00:00:00Z
# >   +valid_from: 2026-02-01T00:00:00Z
# >   shown in: snap_95d59218721a178ae3152891254806d8
# >   to: ana
# >   by agents: agent
# >
# > Registry registry: 0 added, 1 changed, 0 removed, 0 unchanged
# > Checked; nothing was written

#: publish tail=10
ctx publish gmv.yaml --no-build
# > …
# >   by agents: agent
# >
# > Registry registry: 0 added, 1 changed, 0 removed, 0 unchanged
# > Published, not served yet; until then: metric:registry/gmv@2
# >
# > Warning: not built: the next `ctx build`, or the superseded_versions sensor, serves the new versions; until then the ones before are
# >   ctx build
# >
# > Next
# >   ctx items history metric:registry/gmv
ctx why-not metric:registry/gmv
# > item                 version  to you   reason
# > metric:registry/gmv  1        hidden   expired
# > metric:registry/gmv  2        visible
# >
# > You may see it; whether it goes into a pack is decided per request
# >   ctx items history metric:registry/gmv

#: build tail=3
ctx build --select 'sources/registry+'
# > …
# >
# > 12 live items, 1 embedded, 1 reused, 0 retired in 3.1 s
# > artifact 2f0a0a2bd8bb5b8c2376e965676df7d476073180bd833f196e68ab3d4d14cae9
ctx why-not metric:registry/gmv
# > …
# >
# > You may see it; whether it goes into a pack is decided per request
# >   ctx items history metric:registry/gmv
