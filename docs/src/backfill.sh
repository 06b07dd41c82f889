# Past days of the daily roll-up. Runs on the project of the tutorial.

#: home quiet
cd shop

#: settings quiet
sed -i 's/^# since = 2026-01-01.*/since = 2026-11-01/' ctx.toml

#: backfill
ctx build --partitions 2026-11-01..2026-11-03
# > [1/3] usage/daily_exposure 2026-11-01
# > [2/3] usage/daily_exposure 2026-11-02
# > [3/3] usage/daily_exposure 2026-11-03
# > Partitions
# > asset                 built  built before  from        to
# > usage/daily_exposure      3             0  2026-11-01  2026-11-03
# >
# > done in 1.3 s
ctx build --partitions 2026-11-01..2026-11-04
# > [1/1] usage/daily_exposure 2026-11-04
# > Partitions
# > asset                 built  built before  from        to
# > usage/daily_exposure      1             3  2026-11-04  2026-11-04
# >
# > done in 1.2 s
