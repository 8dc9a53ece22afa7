"""An island trip: three tools that each know one part of it."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["travel_tools"]

_FERRIES = {
    "saturday": "08:25, 11:10, 14:40, 17:55",
    "sunday": "09:45, 13:20, 16:30",
}
_WEEKDAY_FERRIES = "06:50, 08:05, 12:15, 16:00, 18:20"


def travel_tools() -> tuple[Callable[..., str], ...]:
    """Make the tools of one run.

    Returns:
        `ferry_timetable`, `ticket_price` and `opening_hours`.
    """
    return ferry_timetable, ticket_price, opening_hours


def ferry_timetable(day: str) -> str:
    """Departures of the ferry to Vennholm on a day of the week."""
    times = _FERRIES.get(day.strip().lower(), _WEEKDAY_FERRIES)
    return f"Ferries to Vennholm on {day}: {times}."


def ticket_price(sight: str) -> str:
    """Ticket prices of a sight on Vennholm, such as the castle garden."""
    if "garden" not in sight.lower():
        return "No such sight. Sights on Vennholm: castle garden."
    return "Castle garden: adults 9.40 crowns, children 4.10 crowns, families 21.00 crowns."


def opening_hours(sight: str, day: str) -> str:
    """Opening hours of a sight on Vennholm on a day of the week."""
    if "garden" not in sight.lower():
        return "No such sight. Sights on Vennholm: castle garden."
    hours = "10:00 to 18:30" if day.strip().lower() in _FERRIES else "11:00 to 16:45"
    return f"Castle garden on {day}: open {hours}."
