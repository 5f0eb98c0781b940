"""OB1 with the real programs: promtool lints what a node says and the rules in the docs, and Prometheus scrapes it.

Usage: check.py TENURE TOOLS FOLDER PORT
"""

import json
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

DEADLINE = 30


def get(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def until(what, holds):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        try:
            found = holds()
            if found:
                return found
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    sys.exit(f"error: {what}: not within {DEADLINE} s")


def lint(tools, *arguments, text=None):
    done = subprocess.run([tools / "promtool", *arguments], input=text, text=True, capture_output=True)
    said = (done.stdout + done.stderr).strip()
    if done.returncode != 0 or (text is not None and said):
        sys.exit(f"error: promtool {' '.join(map(str, arguments))}\n{said}")


def main():
    tenure, tools, folder, port = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), int(sys.argv[4])
    folder.mkdir(parents=True, exist_ok=True)
    listen = folder / "listen"
    node = subprocess.Popen(
        [tenure, "serve", "--listen", "127.0.0.1:0", "--store", f"disk:{folder}/store", "--set", "metrics.listen=127.0.0.1:0", "--log", "json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    prometheus = None
    try:
        metrics = mcp = None
        for line in node.stderr:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            text = json.dumps(entry)
            if "metrics are served" in text:
                metrics = next(value for value in flat(entry) if isinstance(value, str) and value.startswith("127.0.0.1:"))
            mcp = next((value for value in flat(entry) if isinstance(value, str) and value.endswith("/mcp")), mcp)
            if metrics and mcp:
                break
        # Somebody has to read what else it says.
        rest = subprocess.Popen(["cat"], stdin=node.stderr, stdout=subprocess.DEVNULL)
        for _ in range(3):
            subprocess.run([tenure, "tools", mcp], check=True, capture_output=True)
        text = get(f"http://{metrics}/metrics")
        lint(tools, "check", "metrics", text=text)
        rules = pathlib.Path("docs/metrics/alerts.yml").resolve()
        lint(tools, "check", "rules", rules)
        config = folder / "prometheus.yml"
        config.write_text(
            "global: { scrape_interval: 1s, evaluation_interval: 1s }\n"
            f"rule_files: ['{rules}']\n"
            f"scrape_configs: [{{ job_name: tenure, static_configs: [{{ targets: ['{metrics}'] }}] }}]\n"
        )
        lint(tools, "check", "config", config)
        listen.mkdir(exist_ok=True)
        prometheus = subprocess.Popen(
            [tools / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={listen}/data", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
        )
        query = lambda name: json.loads(get(f"http://127.0.0.1:{port}/api/v1/query?query={name}"))["data"]["result"]
        built = until("Prometheus has scraped the node", lambda: query("tenure_build_info"))
        assert built[0]["value"][1] == "1", built
        names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
        known = json.loads(get(f"http://127.0.0.1:{port}/api/v1/label/__name__/values"))["data"]
        missing = [name for name in names if not any(known_name == name or known_name.startswith(name + "_") for known_name in known)]
        if missing:
            sys.exit(f"error: Prometheus did not take {missing}")
        alerts = json.loads(get(f"http://127.0.0.1:{port}/api/v1/rules"))["data"]["groups"][0]["rules"]
        wrong = [rule["name"] for rule in alerts if rule["health"] == "err"]
        if wrong:
            sys.exit(f"error: these rules cannot be evaluated: {wrong}")
        print(f"promtool finds nothing; Prometheus took {len(names)} metrics and evaluates {len(alerts)} rules")
    finally:
        for process in (prometheus, node):
            if process and process.poll() is None:
                process.terminate()
                process.wait(timeout=20)
        if "rest" in locals():
            rest.wait(timeout=5)


def flat(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from flat(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from flat(inner)
    else:
        yield value


main()
