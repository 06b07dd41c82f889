# `bash restore_postgres.bash /backups/shop /srv/shop`, where CTX_LEDGER__URL names an empty database.
set -euo pipefail
from=${1:?the folder of the backup}
to=${2:?the project, without a .ctx/state}
pg_restore --no-owner --exit-on-error --single-transaction --dbname="$CTX_LEDGER__URL" "$from/ledger.dump"
mkdir -p "$to/.ctx"
cp -a "$from/.ctx/state" "$to/.ctx/"
