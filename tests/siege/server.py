"""A small MCP server over stdio: `public_echo`, and two tools that talk without end. Knows sessions alone."""

import json
import os
import sys
import time

OUT = sys.stdout.buffer


def say(message):
    OUT.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def noise(seconds):
    lines = b"".join(b"line %d of a child that has a great deal to say\n" % number for number in range(1000))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        os.write(2, lines)


def flood(seconds):
    notification = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 1000}}
    lines = (json.dumps(notification).encode() + b"\n") * 100
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        OUT.write(lines)


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "siege", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("public_echo", "noise", "flood")]}
    if method == "tools/call":
        arguments = params.get("arguments", {})
        if params["name"] in ("noise", "flood"):
            # It is a part of the attack, so it too leaves the processor to others.
            os.nice(10)
            {"noise": noise, "flood": flood}[params["name"]](arguments["seconds"])
        return {"content": [{"type": "text", "text": arguments.get("text", "done")}]}
    return None


for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    if result is None:
        say({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    else:
        say({"id": message["id"], "result": result})
    OUT.flush()
