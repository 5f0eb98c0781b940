"""All legs of the siege, by name, in the order in which they run."""

from legs import bodies, child, connections, disk, events, requests

MODULES = (connections, bodies, events, requests, disk, child)
LEGS = {leg.name: leg for module in MODULES for leg in module.LEGS}
