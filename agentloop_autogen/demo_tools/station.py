"""Two tools whose results run to thousands of characters, with the few words that matter inside."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

__all__ = ["station_tools"]

_MIDNIGHT = datetime(2031, 6, 12, tzinfo=timezone.utc)
_LINES = 120
_FAULT_LINE = 113
_FAULT = "pump 3 STOPPED, cause: shaft seal leaking"
_PARTS = ("rotor", "casing", "bearing", "coupling", "gasket", "impeller", "shaft seal", "valve", "filter", "motor")
_PUMPS = 9


def station_tools() -> tuple[Callable[..., str], ...]:
    """Make the tools of one run.

    Returns:
        `station_log` and `parts_table`.
    """
    return station_log, parts_table


def station_log(station: str) -> str:
    """The whole log of a pumping station for the last day, oldest line first."""
    if "fennick" not in station.lower():
        return "No such station. Stations: Fennick."
    return "\n".join(_log_line(number) for number in range(_LINES))


def parts_table(pump: int) -> str:
    """Spare parts of all pumps with part number and shelf; the pump asked for comes last."""
    others = [number for number in range(1, _PUMPS + 1) if number != pump]
    rows = [_part_row(number, part) for number in (*others, pump) for part in _PARTS]
    return "\n".join(["pump | part | part number | shelf | weight", *rows])


def _log_line(number: int) -> str:
    at = (_MIDNIGHT + timedelta(minutes=12 * number)).strftime("%H:%M")
    if number == _FAULT_LINE:
        return f"{at} {_FAULT}"
    pump = number % 4 + 1
    if number > _FAULT_LINE and pump == 3:
        return f"{at} pump 3 off"
    return f"{at} pump {pump} running, flow {40 + number * 7 % 13} l/s, pressure {3 + number * 3 % 5}.{number % 10} bar"


def _part_row(pump: int, part: str) -> str:
    index = _PARTS.index(part)
    return (
        f"pump {pump} | {part} | FS-{2000 + 100 * pump + 7 * index}-{'ABCDEFGHJK'[index]} | "
        f"shelf {pump}{'LR'[index % 2]}{index} | {1.5 + pump * 0.3 + index * 0.8:.1f} kg"
    )
