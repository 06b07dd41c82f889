import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from ctx_pipeline import ContextProject, ContextRequest, Task


class Policy(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        decisions = {
            label["id"]: self.decide(question["viewer"], label) for label in question["labels"]
        }
        answer = {
            "protocol": "ctx.policy.v1",
            "batch_id": question["batch_id"],
            "policy_version": "2026-11-30",
            "decision_id": "d-1",
            "decisions": decisions,
        }
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def decide(self, viewer: dict, label: dict) -> str:
        trusted = label["trust"] in ("system_trusted", "enterprise_trusted")
        return "allow" if trusted and "analysts" in viewer["groups"] else "deny"

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Policy)
Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
service = {
    "kind": "http",
    "url": f"http://127.0.0.1:{server.server_port}/decide",
    "timeout_ms": 5_000,
}

with ContextProject.open("shop", overrides={"policy_service": service}) as project:
    pack = project.assemble(ContextRequest(task=Task(text="Which region was late in October?")))
server.shutdown()
server.server_close()

decision = pack.policy_decision
assert decision is not None
print(
    f"{decision.service} {decision.policy_version} {decision.decision_id}: "
    f"{decision.denied} of {decision.asked} denied"
)
print(pack.denied)
