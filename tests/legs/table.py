"""Every leg of the tests: a row for each.

A row says the name of the leg, what it shows, what it needs, which servers run meanwhile, and its commands, which run one
after the other and all have to succeed. `./dev legs` lists the rows, `./dev leg NAME...` runs some of them.

In commands and servers:
  {tenure} {example}    our binary, and its example server that the conformance suite knows (`--backend`, `--eras`)
  {node} {py1} {py2}    Node, and Python with version 1 and with version 2 of the SDK; {clients} is where they are installed
  {server} {gateway}    the URL of the server of that name
  {folder} {port}       a folder of the leg's own, which is deleted, and a free port
  {page} {page_node}    where the tests of the operator's page are installed, and their Node
  {results}             where conformance legs leave what the suite saved, a folder for each of them
"""

from leg import Kept, Leg, Server

HOUR = 3600

# What legs need: made once, before the first leg that needs it starts. A leg can also need another leg.
NEEDS = [
    # All programs at once, and always the same: another selection would be built with other features, from the ground up.
    Leg(
        name="programs",
        shows="the binaries and examples",
        run=["cargo build --locked --workspace --bins --examples"],
        turn="cargo",
        slots=0,
        limit=HOUR,
    ),
    Leg(name="tests", shows="the Rust tests, built", run=["nice tests/legs/rust-tests --build"], turn="cargo", slots=0, limit=HOUR),
    Leg(name="nats", shows="the NATS servers", run=["tests/nats/install .dev/nats"], slots=0, limit=HOUR),
    Leg(name="clients", shows="the SDKs and the conformance suite", run=["tests/clients/install {clients}"], slots=0, limit=HOUR),
    Leg(name="page", shows="Chromium, and what drives it", run=["tests/clients/browser/install {page} tests/page"], slots=0, limit=HOUR),
    Leg(
        name="fast-agent",
        shows="fast-agent, which needs Python 3.13",
        run=["tests/clients/install-fast-agent {clients}"],
        slots=0,
        limit=HOUR,
    ),
]

FIXTURES = "{node} tests/clients/fixtures.mjs"
EVERYTHING = "{node} {clients}/node_modules/@modelcontextprotocol/server-everything/dist/index.js"


def each_sdk(typescript, python):
    """Both versions of both SDKs, one after the other."""
    return [
        *(f"{{node}} tests/clients/{typescript}".replace("VERSION", version) for version in ("v1", "v2")),
        *(f"{{{version}}} tests/clients/{python}" for version in ("py1", "py2")),
    ]


def gateway(behind):
    return Server("gateway", f"{{tenure}} serve --listen 127.0.0.1:0 --store disk:{{folder}}/store {behind}")


LEGS = [
    # Rust. Half of the time of these tests is waiting, but some of them measure time, so little else runs beside them.
    Leg(
        name="rust/tests",
        shows="all Rust tests but those in docs and those of the NATS engine; the slowest ten are printed",
        needs=["tests", "nats"],
        run=["tests/legs/rust-tests --without tenure-store-nats"],
        slots=3,
        tail=11,
    ),
    # Three servers elect leaders over and over, and wait for each other.
    Leg(
        name="rust/nats",
        shows="the NATS engine at real servers, one and three, also when they die",
        needs=["tests", "nats"],
        run=["tests/legs/rust-tests --only tenure-store-nats"],
        slots=2,
        tail=11,
    ),
    # Lints and docs. They come second: they keep a processor busy, and can have it while tests wait. `nice` gives the tests the
    # first choice. Cargo builds one thing at a time in a target folder, so all that compiles takes turns.
    Leg(
        name="lint/clippy",
        shows="no lints in any target",
        run=["nice cargo clippy --workspace --all-targets --locked -- -D warnings"],
        turn="cargo",
    ),
    Leg(
        name="lint/docs",
        shows="the docs of all crates can be built, and their links lead somewhere",
        # With an example, since dependencies then have the same features as for clippy, and are not checked again.
        run=[
            "nice env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked"
            " --lib --bin tenure-bench --bin tenure-crash --example own_store"
        ],
        turn="cargo",
    ),
    Leg(
        name="lint/library",
        shows="no lints in the library without the command line, as embedders use it",
        run=["nice cargo clippy --package tenure --lib --no-default-features --locked -- -D warnings"],
        turn="cargo",
    ),
    Leg(name="lint/format", shows="the code is formatted", run=["cargo fmt --all --check"]),
    Leg(name="lint/legs", shows="the program that runs these legs", run=["python3 -m unittest discover -s tests/legs"]),
    Leg(
        name="rust/doc-tests",
        shows="the examples in docs",
        needs=["tests"],
        run=["cargo test --workspace --locked --doc --quiet"],
        turn="cargo",
    ),
    # Crashes.
    Leg(
        name="crash/kills",
        shows="a server that is killed under load keeps its promises",
        needs=["programs"],
        run=["target/debug/tenure-crash --kills 6"],
        slots=2,
    ),
    Leg(
        name="crash/power",
        shows="with durability `disk`, nothing acknowledged is gone after a loss of power",
        needs=["programs"],
        run=["target/debug/tenure-crash --power --kills 3"],
        slots=2,
    ),
    Leg(
        name="crash/loss-is-noticed",
        shows="a loss of power is noticed where the server does not wait for the disk, so that the leg before can fail",
        needs=["programs"],
        run=["target/debug/tenure-crash --power --expect-loss --kills 20"],
        slots=2,
    ),
    Leg(
        name="nodes/crash",
        shows="three nodes on a real engine keep their promises while nodes are killed, stand still, end and are cut off",
        needs=["programs", "nats"],
        run=["target/debug/tenure-crash --nodes 3 --clients 8 --faults kill=2,pause=1,cut-engine=1,term=1"],
        slots=3,
    ),
    Leg(
        name="metrics/prometheus",
        shows="promtool finds nothing to say about metrics and rules, and Prometheus takes them",
        needs=["programs"],
        run=["tests/metrics/install .dev/prometheus", "python3 tests/metrics/check.py {tenure} .dev/prometheus {folder} {port}"],
    ),
    Leg(
        name="metrics/collector",
        shows="a real collector takes the traces of a node",
        needs=["programs"],
        run=["tests/metrics/install .dev/prometheus", "python3 tests/metrics/traces.py {tenure} .dev/prometheus/rotel-agent {folder} {port}"],
    ),
    Leg(
        name="nodes/balancers",
        shows="three nodes behind nginx and HAProxy, with the files of docs/balancers and without stickiness",
        needs=["programs", "nats"],
        # Debian's packages, unpacked; another system cannot run it.
        run=[
            "tests/balancers/install .dev/balancers",
            "tests/balancers/run {tenure} .dev/nats/newest .dev/balancers {folder}/nodes",
        ],
        slots=2,
    ),
    # The official conformance suite. First the example server itself.
    Leg(
        name="conformance/native",
        shows="the suite at native handlers, sessions on disk",
        needs=["programs", "clients"],
        servers=[Server("server", "{example} --listen 127.0.0.1:0 --backend native --store disk:{folder}/store")],
        run=["tests/clients/conformance --leg server {clients} {server} {results}"],
    ),
    Leg(
        name="conformance/rmcp",
        shows="the suite at rmcp's handlers, sessions in memory",
        needs=["programs", "clients"],
        servers=[Server("server", "{example} --listen 127.0.0.1:0 --backend rmcp --store memory:")],
        run=["tests/clients/conformance --leg server-rmcp {clients} {server} {results}"],
    ),
    Leg(
        name="conformance/cluster",
        shows="the suite at three nodes that share a store; each request goes to the next one",
        needs=["programs", "clients"],
        servers=[Server("server", "{example} --listen 127.0.0.1:0 --backend native --nodes 3")],
        run=["tests/clients/conformance --leg server {clients} {server} {results}"],
    ),
    # Gateways to servers that are not ours: whatever passes without the gateway has to pass with it. The server on the
    # TypeScript SDK knows sessions alone.
    Leg(
        name="conformance/at-typescript",
        shows="what passes at the TypeScript SDK's server without a gateway, to be compared with",
        needs=["clients"],
        servers=[Server("server", f"{FIXTURES} http", stop="TERM", ends_well=False)],
        run=["tests/clients/conformance --eras legacy {clients} {server} {results} {results}"],
    ),
    Leg(
        name="conformance/at-rmcp",
        shows="what passes at rmcp's own HTTP service without a gateway, to be compared with",
        needs=["programs", "clients"],
        servers=[Server("server", "{example} --backend rmcp-alone", stop="TERM", ends_well=False)],
        run=["tests/clients/conformance --eras both {clients} {server} {results} {results}"],
    ),
    Leg(
        name="conformance/gateway-typescript",
        shows="the suite through a gateway to the TypeScript SDK's server over Streamable HTTP",
        needs=["programs", "conformance/at-typescript"],
        servers=[Server("server", f"{FIXTURES} http", stop="TERM", ends_well=False), gateway("--upstream {server}")],
        run=["tests/clients/conformance --eras legacy {clients} {gateway} {results} {results}/../at-typescript"],
    ),
    Leg(
        name="conformance/gateway-sse",
        shows="the suite through a gateway to the TypeScript SDK's server over HTTP+SSE",
        needs=["programs", "conformance/at-typescript"],
        servers=[Server("server", f"{FIXTURES} sse", stop="TERM", ends_well=False), gateway("--upstream {server}")],
        run=["tests/clients/conformance --eras legacy {clients} {gateway} {results} {results}/../at-typescript"],
    ),
    Leg(
        name="conformance/gateway-stdio",
        shows="the suite through a gateway to the TypeScript SDK's server over stdio",
        needs=["programs", "conformance/at-typescript"],
        servers=[gateway(f"-- {FIXTURES} stdio")],
        run=["tests/clients/conformance --eras legacy {clients} {gateway} {results} {results}/../at-typescript"],
    ),
    Leg(
        name="conformance/gateway-rmcp",
        shows="the suite through a gateway to rmcp's own HTTP service",
        needs=["programs", "conformance/at-rmcp"],
        servers=[Server("server", "{example} --backend rmcp-alone", stop="TERM", ends_well=False), gateway("--upstream {server}")],
        run=["tests/clients/conformance --eras both {clients} {gateway} {results} {results}/../at-rmcp"],
    ),
]

# The same where callers need credentials: a proxy adds them, since the suite has none. All that passes without has to pass.
for era in ("legacy", "modern"):
    LEGS.append(
        Leg(
            name=f"conformance/with-auth-{era}",
            shows=f"the {era} suite through a gateway that asks for credentials, which a proxy adds",
            needs=["programs", "conformance/at-rmcp"],
            servers=[
                Server("server", "{example} --backend rmcp-alone", stop="TERM", ends_well=False),
                gateway("--upstream {server} --set auth.keys_file={folder}/keys.toml"),
                Server("proxy", "python3 tests/clients/with-key {tenure} {folder}/keys.toml {gateway}", ends_well=False),
            ],
            run=[f"tests/clients/conformance --eras {era} {{clients}} {{proxy}} {{results}} {{results}}/../at-rmcp"],
        )
    )

# Gateways to servers that know one era alone, with the suite of the other one. What cannot pass is in
# tests/clients/expected.txt. First each server is asked whether it does know one era alone: through a gateway to a server
# that knows both, nothing would be shown.
for era, other in (("legacy", "modern"), ("modern", "legacy")):
    for backend in ("native", "rmcp-alone"):
        command = f"{{example}} --backend {backend} --eras {era}"
        # The suite knows no tasks in sessions, so real clients call the tools that become tasks.
        calls = [f"{{node}} tests/clients/task-calls.mjs {version} {{gateway}}" for version in ("v1", "v2")]
        for transport in ("http", "stdio"):
            server = "{server}" if transport == "http" else f"-- {command} --stdio"
            LEGS.append(
                Leg(
                    name=f"conformance/{era}-{backend}-{transport}",
                    shows=f"the {other} suite through a gateway to a {era} server: {backend}, {transport}",
                    needs=["programs", "clients"],
                    servers=[
                        *([Server("server", command)] if transport == "http" else []),
                        gateway("--upstream {server}" if transport == "http" else server),
                    ],
                    run=[
                        f"{{node}} tests/clients/one-era.mjs {era} {server}",
                        f"tests/clients/conformance --eras {other} --leg to-{era} {{clients}} {{gateway}} {{results}}",
                        *(calls if (era, backend) == ("modern", "native") else []),
                    ],
                )
            )
# What the suite has on tasks, at the TypeScript SDK's server, which has the tasks of sessions.
for transport in ("http", "stdio"):
    server = "{server}" if transport == "http" else f"-- {FIXTURES} stdio"
    LEGS.append(
        Leg(
            name=f"conformance/legacy-typescript-{transport}",
            shows=f"what the modern suite has on tasks, through a gateway to the TypeScript SDK's server, {transport}",
            needs=["programs", "clients"],
            servers=[
                *([Server("server", f"{FIXTURES} http", ends_well=False)] if transport == "http" else []),
                gateway("--upstream {server}" if transport == "http" else server),
            ],
            run=[
                f"{{node}} tests/clients/one-era.mjs legacy {server}",
                "tests/clients/conformance --eras tasks --leg to-legacy-tasks {clients} {gateway} {results}",
            ],
        )
    )

LEGS += [
    Leg(
        name="conformance/client",
        shows="the client half of the suite, with a gateway in the place of a client",
        needs=["programs", "clients"],
        run=["tests/clients/conformance-client {clients} target/debug/examples/conformance_client {results}"],
    ),
    Leg(
        name="conformance/client-in-session",
        shows="the client half of the suite, with a gateway in the place of a client, and a session's client at the gateway",
        needs=["programs", "clients"],
        run=[
            "tests/clients/conformance-client --eras modern --leg client-in-session {clients}"
            " 'target/debug/examples/conformance_client --client legacy' {results}"
        ],
    ),
    Leg(
        name="conformance/client-auth",
        shows="the client half of the suite, where a gateway proves who it is to the server behind it",
        needs=["programs", "clients"],
        run=[
            "tests/clients/conformance-client --eras auth --leg client-auth {clients}"
            " target/debug/examples/conformance_client {results}"
        ],
    ),
    # Real clients: both versions of the TypeScript and of the Python SDK.
    Leg(
        name="clients/eras",
        shows="SDK clients of both eras at SDK servers of both, directly and through a gateway",
        needs=["programs", "clients"],
        run=["tests/clients/eras {clients} {tenure}"],
        # It runs four servers at a time itself.
        slots=3,
    ),
    Leg(
        name="clients/native",
        shows="SDK clients at native handlers, sessions on disk; their connections are cut in the middle of a call",
        needs=["programs", "clients"],
        servers=[Server("server", "{example} --listen 127.0.0.1:0 --backend native --store disk:{folder}/store")],
        run=each_sdk("typescript.mjs {server} VERSION", "python.py {server}"),
    ),
    Leg(
        name="clients/rmcp",
        shows="SDK clients at rmcp's handlers, sessions in memory; their connections are cut in the middle of a call",
        needs=["programs", "clients"],
        servers=[Server("server", "{example} --listen 127.0.0.1:0 --backend rmcp --store memory:")],
        run=each_sdk("typescript.mjs {server} VERSION", "python.py {server}"),
    ),
    Leg(
        name="clients/killed",
        shows="SDK clients at the demo server, which is killed in the middle of a call",
        needs=["programs", "clients"],
        servers=[Kept("server", "/mcp", "{tenure} serve --listen 127.0.0.1:{port} --store disk:{folder}/store")],
        run=each_sdk("typescript.mjs {server} VERSION {folder}/pid", "python.py {server} {folder}/pid"),
    ),
    Leg(
        name="clients/doors",
        shows="SDK clients through the doors for old clients, /sse and /ws; the server is killed once",
        needs=["programs", "clients"],
        servers=[
            Kept(
                "server",
                "/mcp",
                "{tenure} serve --door sse --door websocket --listen 127.0.0.1:{port} --store disk:{folder}/store",
            )
        ],
        run=each_sdk("doors.mjs {server} VERSION {folder}/pid", "doors.py {server}"),
    ),
    Leg(
        name="clients/limits",
        shows="SDK clients that call more often than they may are told when to come back, and go on",
        needs=["programs", "clients"],
        servers=[
            Server(
                "server",
                "{tenure} serve --listen 127.0.0.1:0 --store memory: --set limits.max_wait=0s"
                " --set 'limits.tools=public_echo = 1/s'",
            )
        ],
        run=each_sdk("limits.mjs VERSION {server}", "limits.py {server}"),
    ),
    Leg(
        name="clients/stdio",
        shows="SDK clients that start the server themselves and talk to it over pipes, all on one store",
        needs=["programs", "clients"],
        run=each_sdk(
            "stdio.mjs VERSION {tenure} stdio --store disk:{folder}/store",
            "stdio.py {tenure} stdio --store disk:{folder}/store",
        ),
    ),
    Leg(
        name="clients/data-sessions",
        shows="data sessions of the modern era, which need no session",
        needs=["programs", "clients"],
        run=["{py2} tests/clients/data_sessions_modern.py {tenure}"],
    ),
    Leg(
        name="clients/commands",
        shows="tenure tools, call, resources, read and prompts at servers of either era",
        needs=["programs", "clients"],
        run=["tests/clients/commands {clients} {tenure}"],
        slots=2,
    ),
]

# Each SDK through gateways of its own to the reference servers and one on FastMCP, over stdio.
for command in each_sdk("gateway.mjs VERSION {tenure} {clients}", "gateway.py {tenure} {clients}"):
    sdk = next(sdk for sdk, part in {"ts1": " v1 ", "ts2": " v2 ", "py1": "{py1}", "py2": "{py2}"}.items() if part in command)
    LEGS.append(
        Leg(
            name=f"clients/gateway-{sdk}",
            shows=f"SDK {sdk} through gateways to stdio servers that others wrote; server and gateway are killed",
            needs=["programs", "clients"],
            run=[command],
        )
    )

# Each SDK logs in at an authorization server of its own.
for sdk in ("ts1", "ts2", "py1", "py2"):
    LEGS.append(
        Leg(
            name=f"clients/auth-{sdk}",
            shows=f"SDK {sdk} logs in at a real authorization server, gets wider tokens, renews them and keeps its session",
            needs=["programs", "clients"],
            run=[f"tests/clients/auth/run {{clients}} {{tenure}} {sdk}"],
        )
    )

LEGS.append(
    Leg(
        name="clients/auth-gateway",
        shows="a gateway gets tokens for the server behind it at a real authorization server, which that server names, and renews them",
        needs=["programs", "clients"],
        run=["tests/clients/auth/gateway {clients} {tenure}"],
    )
)

# Every SDK through one gateway to a server over HTTP. Each of them kills the server, so they come one after the other.
for name, kind, path, command in (
    ("python-sse", "fastmcp", "/sse", "{py1} tests/clients/fastmcp_server.py sse {port}"),
    ("python-http", "fastmcp", "/mcp", "{py1} tests/clients/fastmcp_server.py streamable-http {port}"),
    ("typescript-sse", "fixtures", "/sse", f"{FIXTURES} sse {{port}}"),
    ("everything-sse", "everything", "/sse", f"{EVERYTHING} sse"),
    ("everything-http", "everything", "/mcp", f"{EVERYTHING} streamableHttp"),
    ("rmcp-http", "fixtures", "/mcp", "{example} --backend rmcp-alone --listen 127.0.0.1:{port}"),
):
    LEGS.append(
        Leg(
            name=f"clients/upstream-{name}",
            shows=f"SDK clients through a gateway to {name}, which is killed in the middle of calls",
            needs=["programs", "clients"],
            servers=[Kept("server", path, command), gateway("--log json --upstream {server}")],
            run=each_sdk(
                f"upstream.mjs VERSION {{gateway}} {{folder}}/pid {kind}",
                f"upstream.py {{gateway}} {{folder}}/pid {kind}",
            ),
        )
    )

# The two released versions of fast-agent that speak the dialects of data sessions. `./dev test` leaves them out: they need
# Python 3.13, which not every machine has.
for version in ("0.5.3", "0.7.15"):
    LEGS.append(
        Leg(
            name=f"fast-agent/{version}",
            shows=f"data sessions with fast-agent {version}, which starts servers of its own",
            needs=["programs", "clients", "fast-agent"],
            run=[f"{{clients}}/fast-agent-{version}/bin/python tests/clients/data_sessions.py {{tenure}}"],
        )
    )

# The operator's page. `./dev test` leaves these out: they install Chromium.
LEGS += [
    Leg(
        name="page/types",
        shows="the types of the page's modules",
        needs=["page"],
        run=["{page_node} {page}/node_modules/typescript/bin/tsc --project crates/tenure/src/page/jsconfig.json"],
    ),
    Leg(
        name="page/units",
        shows="texts, the picture of a session's life, and forms from schemas",
        needs=["page"],
        run=["{page_node} --test tests/page/units.test.mjs"],
    ),
    Leg(
        name="page/mock",
        shows="the page in Chromium in front of a node that is made up: AD1, AD2, AD5, AD7, AD8",
        needs=["page"],
        run=["{page_node} --test tests/page/page.test.mjs"],
        slots=2,
    ),
    Leg(
        name="page/real",
        shows="the page in Chromium in front of the binary: AD2, AD3, AD4, AD5, AD7",
        needs=["page", "programs"],
        run=["env TENURE={tenure} {page_node} --test tests/page/real.test.mjs"],
        slots=2,
    ),
]
