"""What a leg of the siege says of itself."""

from dataclasses import dataclass
from typing import Callable

MIB = 1 << 20


@dataclass(frozen=True)
class Leg:
    """One attack, and what has to hold under it beside what holds under all of them.

    `attack(target)` runs in a process of its own. `before(siege)` runs before it, `during(siege)` in the middle of it, and `after(siege)`
    when all else is over; the last two return complaints. What `after` finds out may be put into `siege.figures`.
    """

    name: str
    about: str
    attack: Callable
    before: Callable | None = None
    during: Callable | None = None
    after: Callable | None = None
    settings: tuple[str, ...] = ()
    seconds: float = 8
    memory: int = 128 * MIB
    behind: tuple[str, ...] = ()
    max_files: int | None = None
    silent_log: bool = False
    # Whether others open new connections too: not where so many addresses attack that no connection is left.
    fresh_others: bool = True
    # Whether a few requests make the server work all the time; the control then does as well.
    is_busy: bool = False
    # What the attacker has to have done, of `requests`, `sent` and `taken`: an attack that a busy machine kept from happening
    # proves nothing, so the leg fails.
    least: tuple[str, int] = ("requests", 1)
    # Size of a file system of its own for the store.
    tmpfs: int | None = None
