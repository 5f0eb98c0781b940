"""Traces at a real collector: rotel takes what a node posts, and prints the spans.

Usage: traces.py TENURE ROTEL FOLDER PORT
"""

import pathlib
import socket
import subprocess
import sys
import threading
import time

DEADLINE = 30


def main():
    tenure, rotel, folder, port = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4])
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        grpc = free.getsockname()[1]
    printed, has_more = [], threading.Condition()

    def read(lines):
        for line in lines:
            with has_more:
                printed.append(line)
                has_more.notify_all()

    collector = subprocess.Popen(
        [
            rotel, "start", "--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}",
            "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    reader = threading.Thread(target=read, args=(collector.stdout,), daemon=True)
    reader.start()
    node = None
    try:
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        node = subprocess.Popen(
            [
                tenure, "serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--log", "json",
                "--set", f"traces.endpoint=http://127.0.0.1:{port}", "--set", "traces.sample=100%",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        mcp = None
        for line in node.stderr:
            found = [word.strip('",}') for word in line.split('"') if word.startswith("http://") and word.endswith("/mcp")]
            if found:
                mcp = found[0]
                break
        rest = subprocess.Popen(["cat"], stdin=node.stderr, stdout=subprocess.DEVNULL)
        subprocess.run([tenure, "tools", mcp], check=True, capture_output=True)
        # A node that stops sends what waits.
        node.terminate()
        node.wait(timeout=20)
        rest.wait(timeout=5)
        wanted = ["tools/list", "mcp.method.name", "mcp.protocol.version", "service.name", "tenure.backend"]
        with has_more:
            complete = has_more.wait_for(lambda: all(any(word in line for line in printed) for word in wanted), DEADLINE)
        if not complete:
            missing = [word for word in wanted if not any(word in line for line in printed)]
            sys.exit(f"error: the collector printed nothing of {missing}:\n{''.join(printed)}")
        print(f"the collector printed {sum('tools/list' in line for line in printed)} lines about tools/list")
    finally:
        for process in (node, collector):
            if process and process.poll() is None:
                process.terminate()
                process.wait(timeout=20)


main()
