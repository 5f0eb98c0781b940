"""What a siege prints: a line while a leg runs, and a table at the end; and a shorter one for the docs."""

import sys
from pathlib import Path

MIB = 1 << 20


def progress(name):
    """A function that says what a leg does now, on a terminal; with no name, clears the line."""

    def say(what):
        if sys.stderr.isatty():
            print(f"\r\x1b[K{name}: {what}", end="", file=sys.stderr, flush=True)
        elif what == "settles":
            print(name, file=sys.stderr, flush=True)

    if name is None and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return say


HEAD = [
    "leg", "memory MiB (idle / peak / after)", "budget", "files", "disk MiB", "given back", "p50 ms (alone / attack / control)",
    "p99 ms", "refused others", "attacker", "verdict",
]


def table(results):
    """One row for each leg, as Markdown."""
    rows = [HEAD, ["---"] * len(HEAD), *(row(result) for result in results)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def row(result):
    verdict = "**fails**" if result["complaints"] else "holds"
    if "rss" not in result:
        return [result["leg"], *[""] * (len(HEAD) - 2), verdict]
    waited = result["given_back_seconds"]
    return [
        result["leg"],
        triple(result["rss"], MIB),
        f"{result['budget'] // MIB} MiB, {result['share']}",
        triple(result["files"]),
        triple(result["disk"], MIB),
        "no" if waited is None else f"{waited:.0f} s",
        " / ".join(f"{time:.1f}" for time in result["p50_ms"]),
        " / ".join(f"{time:.1f}" for time in result["p99_ms"]),
        str(sum(result["refused_others"].values())),
        outcomes(result["attacker"]),
        ", ".join([verdict, *(f"{name} {figure}" for name, figure in result["figures"].items())]),
    ]


def triple(figures, unit=1):
    return " / ".join(str(figure // unit) for figure in figures)


def outcomes(attacker):
    """How the attacker's requests ended, the most frequent first."""
    found = sorted(attacker["outcomes"].items(), key=lambda pair: -pair[1])
    return ", ".join(f"{number} {what}" for what, number in found[:4]) or "none"


BEGIN, END = "<!-- siege: written by ./dev siege --docs -->\n", "<!-- end of siege -->\n"
SHORT = ["attack", "memory MiB (idle / peak / after)", "given back", "p99 of others in ms (alone / attack / control)", "refused", "verdict"]


def write_docs(path, results):
    """Puts a short table between the marks of a document."""
    rows = [SHORT, ["---"] * len(SHORT), *(short(result) for result in results)]
    table = "".join("| " + " | ".join(cells) + " |\n" for cells in rows)
    before, _, rest = Path(path).read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    Path(path).write_text(before + BEGIN + table + END + after)


def short(result):
    cells = dict(zip(HEAD, row(result)))
    names = ["leg", "memory MiB (idle / peak / after)", "given back", "p99 ms", "refused others"]
    return [f"`{cells['leg']}`", *(cells[name] for name in names[1:]), "fails" if result["complaints"] else "holds"]
