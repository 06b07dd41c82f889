from datetime import UTC, datetime

from ctx_pipeline import ContextProject, ContextRequest, Identity, Task

ana = Identity(principal="ana", tenant="acme", groups=("analysts",), clearance="internal")
request = ContextRequest(
    task=Task(
        type="metric_question",
        text="How is GMV defined this year?",
        goal="Answer with the metric's version.",
    ),
    identity=ana,
    model_profile="gpt-5",
    token_budget=2_000,
)

with ContextProject.open("shop") as project:
    pack = project.assemble(request, at=datetime(2026, 11, 30, tzinfo=UTC))

print(pack.total_tokens, "of", pack.budget.usable, "tokens")
for item in pack.items:
    print(item.item_id, item.rendition.value, item.tokens)
