from pathlib import Path

from ctx_pipeline.definitions import make_definitions

defs = make_definitions(Path("shop"))
job = defs.resolve_job_def("assemble_context_job")
request = {
    "task": {"text": "How is GMV defined this year?"},
    "identity": {"principal": "ana", "tenant": "acme"},
}

run = job.execute_in_process({"ops": {"assemble_context": {"config": {"request": request}}}})

pack = run.output_for_node("assemble_context")
print(run.success, [item["item_id"] for section in pack["sections"] for item in section["items"]])
