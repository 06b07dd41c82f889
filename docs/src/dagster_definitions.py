from pathlib import Path

import dagster as dg

from ctx_pipeline.definitions import mounted_definitions


@dg.asset(description="Stands for something of yours that a source is read from.")
def export_handbook() -> None: ...


defs = dg.Definitions.merge(
    dg.Definitions(assets=[export_handbook]), mounted_definitions(Path("shop"))
)

print(sorted(key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()))
