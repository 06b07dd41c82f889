# In the project's folder: `bash backup.bash /backups/shop`. Calls go on meanwhile; a build waits.
set -euo pipefail
umask 077
to=${1:?the folder to back up into}
mkdir -p "$to/.ctx/state"
exec 9>> .ctx/build.lock
flock 9
cp -a .ctx/state/store "$to/.ctx/state/"
sqlite3 .ctx/state/ledger.db ".backup '$to/.ctx/state/ledger.db'"
cp -a ctx.toml "$to/"
