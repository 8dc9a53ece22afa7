"""A stock list that answers, and a supplier that fails every time."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["warehouse_tools"]


def warehouse_tools() -> tuple[Callable[..., str], ...]:
    """Make the tools of one run.

    Returns:
        `stock_level` and `supplier_price`.
    """
    return stock_level, supplier_price


def stock_level(item: str) -> str:
    """How many pieces of an item are in stock."""
    if "kestrel" not in item.lower():
        return "No such item. Items: Kestrel lantern."
    return "Kestrel lantern: 37 in stock, shelf C4."


def supplier_price(item: str) -> str:
    """What the supplier charges for one piece of an item."""
    raise ConnectionError(f"price service of the supplier is unavailable, asked for {item}")
