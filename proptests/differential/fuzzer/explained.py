"""Disagreements that are explained: what the engine refuses on purpose, and where the specification leaves it open."""

import re

# (contract or None, sort of failure, pattern of the message, reason)
REFUSALS = [
]


def explain(case, kind, detail, mode):
    """Returns why a disagreement is right, or None."""
    for contract, sort, pattern, reason in REFUSALS:
        if contract in (None, mode) and sort == kind and re.search(pattern, detail):
            return reason
    return None
