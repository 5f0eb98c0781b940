"""Counts what credentials, limits, logs, metrics and traces add to a call, and fails above their bounds.

Usage: costs.py TENURE NATIVE_ECHO [ROW...]

A server runs under valgrind's callgrind twice for each row, with few calls and with many. The difference is the instructions of a
call, without those of a start. They differ by half a percent at most from run to run, on every machine and under every load; processor
time does not stand still like that, and `./dev bench controls` measures it.

The goals are about processor time: 1.10 for a token, a key and the access log, 1.03 for limits. What the kernel does for a call
costs time and is not counted here, so the same thing is a greater part of the instructions than of the time: where the access log
was 1.145 times the instructions, it was 1.09 times the processor time. The bounds allow for that, and for no more. The goal for metrics
and traces is 1.03; they took 1.04 and 1.05 times the processor time with 1.054 and 1.078 times the instructions.
"""

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# What each row may cost, and which row it is held against. Metrics and traces are held against a server with the access log, which
# is on by default.
BOUNDS = {
    "plain": None,
    "token": (1.12, "plain"),
    "key": (1.10, "plain"),
    "limits": (1.03, "plain"),
    "access": (1.15, "plain"),
    "metrics": (1.07, "access"),
    "traces": (1.09, "access"),
}
FEW, MANY = 400, 1600

ISSUER = "https://issuer.example"
PUBLIC = "https://mcp.example.com"
UNCOUNTED = "[metrics]\ncollect = false\n"
QUIET = f"[log]\naccess = false\n{UNCOUNTED}"
CONFIG = {
    "plain": QUIET,
    "token": f'[[issuer]]\nname = "corp"\nurl = "{ISSUER}"\nkeys = "file:FOLDER/jwks.json"\n[auth]\npublic_url = "{PUBLIC}"\n{QUIET}',
    "key": f'[auth]\nkeys_file = "FOLDER/keys.toml"\n{QUIET}',
    # More than any client can reach.
    "limits": f'[limits]\nprincipal = "1000000/s burst 1000000"\nsession = "1000000/s burst 1000000"\n{QUIET}',
    "access": UNCOUNTED,
    "metrics": "",
    # No collector is there: the few spans that are kept are dropped. One request in a hundred is traced by default.
    "traces": '[traces]\nendpoint = "http://127.0.0.1:9"\n',
}


def text64(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def output(*command, given=None):
    return subprocess.run(command, input=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout


def token(folder):
    """A signed token, and the key of its issuer in a file."""
    secret = f"{folder}/issuer.pem"
    output("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", secret)
    public = output("openssl", "ec", "-in", secret, "-pubout", "-outform", "DER")
    point = {"x": text64(public[-64:-32]), "y": text64(public[-32:])}
    key = {"kty": "EC", "crv": "P-256", "kid": "costs", "alg": "ES256", "use": "sig", **point}
    with open(f"{folder}/jwks.json", "w") as file:
        json.dump({"keys": [key]}, file)
    now = int(time.time())
    claims = {"iss": ISSUER, "sub": "alice", "aud": f"{PUBLIC}/mcp", "client_id": "costs", "scope": "mcp:use"}
    claims |= {"iat": now - 5, "exp": now + 86_400}
    parts = [{"alg": "ES256", "kid": "costs", "typ": "at+jwt"}, claims]
    signed = ".".join(text64(json.dumps(part).encode()) for part in parts)
    found = output("openssl", "dgst", "-sha256", "-sign", secret, given=signed.encode())
    # A signature of openssl is a sequence of two numbers with their lengths.
    numbers, at = [], 2
    for _ in range(2):
        end = at + 2 + found[at + 1]
        numbers.append(int.from_bytes(found[at + 2 : end], "big").to_bytes(32, "big"))
        at = end
    return f"{signed}.{text64(b''.join(numbers))}"


class Client:
    """One session over one connection."""

    def __init__(self, port, credentials):
        self.stream = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        self.head += "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-11-25\r\n"
        if credentials:
            self.head += f"Authorization: Bearer {credentials}\r\n"
        self.rest = b""
        introduction = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "costs", "version": "1"}}
        answered, _ = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": introduction})
        session = re.search(rb"(?i)mcp-session-id: (\S+)", answered)[1].decode()
        self.head += f"Mcp-Session-Id: {session}\r\n"
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, message):
        body = json.dumps(message)
        self.stream.sendall(f"{self.head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        while b"\r\n\r\n" not in self.rest:
            self.read()
        answered, self.rest = self.rest.split(b"\r\n\r\n", 1)
        length = re.search(rb"(?i)content-length: (\d+)", answered)
        length = int(length[1]) if length else 0
        while len(self.rest) < length:
            self.read()
        answer, self.rest = self.rest[:length], self.rest[length:]
        if answered.split()[1] not in (b"200", b"202"):
            sys.exit(f"error: a request was refused: {answered.decode()} {answer.decode()}")
        return answered, answer

    def read(self):
        more = self.stream.recv(65536)
        if not more:
            sys.exit("error: the server closed the connection")
        self.rest += more

    def call(self, number):
        params = {"name": "public_echo", "arguments": {"text": "hello"}}
        _, answer = self.post({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        if b'"result"' not in answer:
            sys.exit(f"error: a call failed: {answer.decode()}")


def instructions(tenure, server, row, calls):
    """All instructions of a server that answers so many calls."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/tenure.toml", "w") as file:
            file.write(CONFIG[row].replace("FOLDER", folder))
        credentials = None
        if row == "token":
            credentials = token(folder)
        elif row == "key":
            credentials = output(tenure, "keys", "new", "costs", "--file", f"{folder}/keys.toml").decode().split()[0]
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", server]
        command += ["--store", "memory:", "--log", "info", "--config", f"{folder}/tenure.toml"]
        with open(f"{folder}/log", "w+") as log:
            environment = {**os.environ, "TOKIO_WORKER_THREADS": "1"}
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
            try:
                client = Client(int(re.search(rb":(\d+)/", process.stdout.readline())[1]), credentials)
                for number in range(calls):
                    client.call(number + 1)
                client.stream.close()
                process.send_signal(signal.SIGTERM)
                process.wait(60)
            finally:
                process.kill()
            log.seek(0)
            return int(re.search(r"Collected\s*:\s*(\d+)", log.read())[1])


def main():
    tenure, server, *chosen = sys.argv[1:]
    # With the rows that the chosen ones are held against.
    wanted = list(chosen or BOUNDS)
    for row in wanted:
        wanted += [row_of[1] for row_of in [BOUNDS[row]] if row_of and row_of[1] not in wanted]
    rows = [row for row in BOUNDS if row in wanted]
    for needed in ("valgrind", "openssl"):
        if not shutil.which(needed):
            sys.exit(f"error: `{needed}` is not installed\n\nhint: install the package `{needed}`")
    found, missed = {}, []
    print("| row | instructions of a call | ratio | to | bound |\n|---|---:|---:|---|---:|")
    for row in rows:
        few, many = (instructions(tenure, server, row, calls) for calls in (FEW, MANY))
        found[row] = (many - few) / (MANY - FEW)
        if BOUNDS[row] is None:
            print(f"| `{row}` | {found[row]:.0f} | | | |", flush=True)
            continue
        bound, to = BOUNDS[row]
        ratio = found[row] / found[to]
        print(f"| `{row}` | {found[row]:.0f} | {ratio:.3f} | `{to}` | {bound} |", flush=True)
        if ratio > bound:
            missed.append(f"`{row}` {ratio:.3f}, at most {bound}")
    if missed:
        sys.exit("error: a call costs more than it may: " + "; ".join(missed))


if __name__ == "__main__":
    main()
