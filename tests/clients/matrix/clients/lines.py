"""What every client of the matrix that is written in Python has in common: calls come in as lines, answers go out as lines.

`lines.mjs` says what the lines are: keep the two alike.
"""

import asyncio
import json
import os
import sys
import threading


async def answer_calls(revision, call):
    """Answers calls with `call(tool, arguments)`, which gives the result of a tool or raises."""
    say(ready=revision)
    lines, loop, running = asyncio.Queue(), asyncio.get_running_loop(), set()

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        # Without a word to the server.
        os._exit(0)

    # A thread that does not keep the client alive when its SDK has given up.
    threading.Thread(target=read, daemon=True).start()
    while True:
        task = asyncio.create_task(answer(json.loads(await lines.get()), call))
        running.add(task)
        task.add_done_callback(running.discard)


async def answer(line, call):
    try:
        result = await call(line["tool"], line["arguments"])
    except asyncio.CancelledError:
        say(id=line["id"], error="cancelled by the SDK: its connection ended")
        raise
    except Exception as error:
        say(id=line["id"], error=describe(error), code=code_of(error))
        return
    text = "\n".join(item.text for item in result.content if item.type == "text")
    if getattr(result, "is_error", False) or getattr(result, "isError", False):
        say(id=line["id"], error=f"tool error: {text}")
    else:
        say(id=line["id"], text=text)


def describe(error):
    """The message of an error, or of the first one in a group."""
    while hasattr(error, "exceptions"):
        error = error.exceptions[0]
    return (str(error) or repr(error)).split("\n")[0]


def code_of(error):
    details = getattr(error, "error", None)
    return getattr(details, "code", None) or getattr(error, "code", None)


def say(**message):
    # One write for each line, so that lines of calls that end together do not mix.
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
