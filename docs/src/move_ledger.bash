# In the project's folder, with everything stopped that builds or answers; CTX_LEDGER__URL names an empty database.
set -euo pipefail
python -m ctx_pipeline.ledger.copy .ctx/state/ledger.db
mv .ctx/state/ledger.db ledger-before-the-move.db
