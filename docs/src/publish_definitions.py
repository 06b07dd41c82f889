from ctx_pipeline.publish import DefinitionFile, publish

ORDERS = """
metrics:
  - name: order_count
    version: 1
    description: Number of orders. 订单数。
    synonyms: [订单数]
    table: orders
    expression: count(*)
"""

report = publish("shop", [DefinitionFile("orders.yaml", content=ORDERS.encode())], build=False)

print("published:", report.published)
for finding in report.findings:
    print(finding.severity, finding.code.value, finding.path)
for change in report.changes:
    print(change.change, change.item_id, change.old_version, "->", change.new_version)
