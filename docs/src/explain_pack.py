from ctx_pipeline import ContextProject, ContextRequest, Task

with ContextProject.open("shop") as project:
    pack = project.assemble(
        ContextRequest(task=Task(text="How is GMV defined this year?")), durable=True
    )

    for trace in project.explain(pack.snapshot_id):
        if not trace.selected:
            print(trace.item_id, trace.version, trace.excluded_reason, trace.counterfactual)

    again = project.replay(pack.snapshot_id)
    print(again.render("text") == pack.render("text"))

    project.report_used(pack.snapshot_id, ["metric:registry/gmv"])
    project.report_usage(
        pack.snapshot_id, {"input_tokens": pack.total_tokens, "cached_input_tokens": 0}
    )
