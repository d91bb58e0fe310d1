"""Explains the kernels of a model, as text and as a table for notebooks."""

from __future__ import annotations

from html import escape
from typing import Any


class Explanation:
    """The kernels of a model's plan. `str` returns text, and a notebook shows a table."""

    def __init__(self, model: Any, kernels: list[dict[str, Any]]) -> None:
        #: The kernels as `Model.kernels` returns them.
        self.kernels = kernels
        self._title = _title(model, kernels)

    def __str__(self) -> str:
        return "\n\n".join([self._title, *map(_paragraph, self.kernels)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        titles = ("#", "kernel", "where", "fused into it", "rules", "predicted")
        head = "".join(f"<th>{title}</th>" for title in titles)
        rows = "".join(map(_row, self.kernels))
        return f"<p>{escape(self._title)}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _title(model: Any, kernels: list[dict[str, Any]]) -> str:
    runs = [kernel for kernel in kernels if not kernel["load"]]
    count = sum(len(kernel["numbers"]) for kernel in runs)
    seconds = sum(len(kernel["numbers"]) * kernel["seconds"] for kernel in runs)
    return f"{count} kernel{'s' * (count != 1)} a run on {model.backend}, predicted {_seconds(seconds)}"


def _paragraph(kernel: dict[str, Any]) -> str:
    first, *others = kernel["numbers"]
    same = f", and the same as {', '.join(others)}" if others else ""
    stored = f"{kernel['stores']} result{'s' * (kernel['stores'] != 1)} stored"
    lines = [
        f"{first}: {kernel['op']} in {kernel['origin']}{same}",
        f"  predicted {_seconds(kernel['seconds'])}: {_count(kernel['bytes'])}B moved, {_count(kernel['flops'])}flop, {stored}",
    ]
    if kernel["way"]:
        lines.append(f"  computed by {kernel['way']}")
    for rule, doc in kernel["rules"]:
        lines.append(f"  by {rule}" + (f": {doc}" if doc else ""))
    if not kernel["rules"]:
        lines.append("  no rule: the program says so itself")
    for op, origin, gain in kernel["fused"]:
        why = "" if gain is None else f": storing it would cost {_seconds(abs(gain))} {'more' if gain >= 0 else 'less'}"
        lines.append(f"  with {op} of {origin}{why}")
    return "\n".join(lines)


def _row(kernel: dict[str, Any]) -> str:
    rules = "<br>".join(f'<span title="{escape(doc)}">{escape(rule)}</span>' for rule, doc in kernel["rules"])
    cells = (
        escape(", ".join(kernel["numbers"])),
        f'<span title="{escape(kernel["way"])}">{escape(kernel["op"])}</span>',
        escape(kernel["origin"]),
        escape(", ".join(op for op, _, _ in kernel["fused"])),
        rules,
        _seconds(kernel["seconds"]),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _seconds(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _count(number: float) -> str:
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:.0f} "
