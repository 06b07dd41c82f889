# In the project's folder: `bash backup_postgres.bash /backups/shop`, where CTX_LEDGER__URL has no password (see ~/.pgpass).
set -euo pipefail
umask 077
to=${1:?the folder to back up into}
mkdir -p "$to/.ctx/state"
exec 9>> .ctx/build.lock
flock 9
cp -a .ctx/state/store "$to/.ctx/state/"
pg_dump --format=custom --no-owner --file="$to/ledger.dump" "$CTX_LEDGER__URL"
cp -a ctx.toml "$to/"
