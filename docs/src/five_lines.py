from ctx_pipeline import ContextProject, ContextRequest, Task

request = ContextRequest(
    task=Task(text="East region GMV last month, year on year?"), token_budget=4_000
)
with ContextProject.open("ctx-demo") as project:
    pack = project.assemble(request)
    print(pack.render("text"), pack.total_tokens, pack.snapshot_id)
