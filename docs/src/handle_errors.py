from ctx_pipeline import ContextProject, ContextRequest, CtxError, Task
from ctx_pipeline.errors import BudgetTooSmall, GateFailed

with ContextProject.open("shop") as project:
    try:
        project.assemble(
            ContextRequest(task=Task(text="How is GMV defined this year?"), token_budget=50)
        )
    except BudgetTooSmall as small:
        print(small.stable_code, "->", small.fix)

    try:
        project.assemble(
            ContextRequest(task=Task(text="How is GMV defined?"), required_types=("schema",))
        )
    except GateFailed as refused:
        print(
            refused.stable_code,
            "->",
            len(project.explain(refused.trace_id)),
            "candidates in the trace",
        )

    try:
        project.expand("metric:registry/revenue")
    except CtxError as error:
        print(error.as_dict()["code"], error.exit_code, error.retryable)
