from ctx_pipeline import ContextProject, ContextRequest, Task

with ContextProject.open("shop") as project:
    pack = project.assemble(ContextRequest(task=Task(text="Find order 42 and refund it.")))

chat = pack.render("openai_chat")
print([message["role"] for message in chat["messages"]])
print([tool["function"]["name"] for tool in chat["tools"]])

claude = pack.render("anthropic")
print(claude["system"][0]["cache_control"], [tool["name"] for tool in claude["tools"]])
