"""The Runtime State Manager: writes finished runs to the store, and asks it for similar ones, beside the run itself.

A store may be slow, full, locked or gone. None of that reaches a run: what cannot be read gives no hint, what cannot be
written is lost, and either is said once on the logger `agentloop_autogen`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Final, cast
from weakref import WeakKeyDictionary, finalize

from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.errors import UsageError
from agentloop_autogen.faults import describe_error
from agentloop_autogen.slots.hint import MOST_PAST, SlotHint, hint_from
from agentloop_autogen.slots.records import RuntimeStateObject
from agentloop_autogen.slots.store import SlotStateStore
from agentloop_autogen.slots.summary import FinishedRun, summarise
from agentloop_autogen.waiting import leave_behind, stop_task

__all__ = ["HintLookup", "RuntimeStateManager", "manager_for", "model_name"]

_log = logging.getLogger("agentloop_autogen")
_REQUEST_CHARS: Final = 2_000
_MOST_WAITING: Final = 256
"""Finished runs that wait to be written; beyond it the store is too slow, and further ones are dropped."""
_BATCH: Final = 64
_PATIENCE_S: Final = 0.05
"""Seconds a finished run waits before it is summed up, so that its answer is out by then, and for others to join it."""
_WRITE_S: Final = 10.0
_LAST_CALL_S: Final = 2.0
"""Seconds for what still waits when the event loop ends."""
_told: Final[dict[int, set[str]]] = {}
"""By identity of the store, the faults that were told of: agents come and go, and each would tell of them again."""

ToKeep = Callable[[], FinishedRun]
"""Gives a finished run; called off the answer's path."""


class HintLookup:
    """The search for similar past requests of one run: started with it, waited for when it is needed.

    Args:
        search: The search; it bounds its own time and raises nothing. None: there is no store.
    """

    def __init__(self, search: asyncio.Future[SlotHint | None] | None = None) -> None:
        self._search = search

    async def hint(self) -> SlotHint | None:
        """Return the hint, waiting for what is left of the search; None where there is none.

        Raises:
            asyncio.CancelledError: The caller was cancelled.
        """
        if self._search is None:
            return None
        await asyncio.wait({self._search})
        return self.known

    @property
    def known(self) -> SlotHint | None:
        """The hint as far as it is there already."""
        search = self._search
        return search.result() if search is not None and search.done() and not search.cancelled() else None

    def close(self) -> None:
        """End the search, if it still goes on."""
        if self._search is not None:
            leave_behind(self._search)


@dataclass
class _Writer:
    """What waits to be written from one event loop, and the task that writes it; none while nothing waits."""

    waiting: deque[tuple[ToKeep, str, datetime]] = field(default_factory=deque["tuple[ToKeep, str, datetime]"])
    task: asyncio.Future[None] | None = None

    @property
    def busy(self) -> asyncio.Future[None] | None:
        """The task, while it runs."""
        return self.task if self.task is not None and not self.task.done() else None


class RuntimeStateManager:
    """Stands between the runs of an agent, or of a team, and a store (the Runtime State Manager of Fig. 5).

    Nothing of a run is kept in it, so runs at the same time, also in several event loops, may share one.

    Args:
        store: Where objects are kept; it stays the caller's to close.
        similarity: ρ, from 0 to 1, from which on a past request counts as similar.
        timeout_s: Seconds a search may take.

    Raises:
        UsageError: `store` is no store.
    """

    def __init__(self, store: SlotStateStore, *, similarity: float, timeout_s: float) -> None:
        if not isinstance(cast(object, store), SlotStateStore):
            kind = type(store).__name__
            raise UsageError(f"`slot_store` is a {kind}: give a SlotStateStore, such as SQLSlotStateStore(path)")
        self._store = store
        self._similarity = similarity
        self._timeout_s = timeout_s
        self._writers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Writer] = WeakKeyDictionary()

    def look_up(self, request: str) -> HintLookup:
        """Start to look for requests like this one; the call itself waits for nothing.

        Args:
            request: What is asked.
        """
        if not request.strip():
            return HintLookup()
        return HintLookup(asyncio.ensure_future(self._search(request[:_REQUEST_CHARS])))

    async def _search(self, request: str) -> SlotHint | None:
        asked: asyncio.Future[Any] | None = None
        try:
            asked = asyncio.ensure_future(self._store.similar(request, MOST_PAST))
            await asyncio.wait({asked}, timeout=self._timeout_s)
            if not asked.done():
                self._complain("read", "timeout", f"nothing came within {self._timeout_s:g} s")
            elif asked.cancelled():
                self._complain("read", "cancelled", "it cancelled its own call")
            else:
                return hint_from(asked.result(), at_least=self._similarity)
        except Exception as error:  # noqa: BLE001 - a store is anybody's code and holds anybody's data
            self._complain("read", type(error).__name__, describe_error(error))
        finally:
            if asked is not None:
                leave_behind(asked)
        return None

    def keep(self, run: ToKeep, *, model: str) -> None:
        """Have a finished run written soon; the call itself waits for nothing and raises nothing.

        Args:
            run: Gives the run.
            model: Name of the model that ran; empty: not known.
        """
        writer = self._writers.setdefault(asyncio.get_running_loop(), _Writer())
        if len(writer.waiting) >= _MOST_WAITING:
            self._complain("write", "full", f"{_MOST_WAITING} finished runs wait for it already, so more are dropped")
            return
        writer.waiting.append((run, model, datetime.now(timezone.utc)))
        if writer.busy is None:
            writer.task = asyncio.ensure_future(self._write(writer))

    async def drain(self, *, timeout_s: float = 5.0) -> bool:
        """Wait until what was kept in this event loop is written.

        Args:
            timeout_s: Seconds to wait, at most.

        Returns:
            Whether nothing waits any more.
        """
        writer = self._writers.get(asyncio.get_running_loop())
        if writer is None or (task := writer.busy) is None:
            return True
        await asyncio.wait({task}, timeout=timeout_s)
        return task.done()

    async def _write(self, writer: _Writer) -> None:
        batch: list[RuntimeStateObject] = []
        try:
            await asyncio.sleep(_PATIENCE_S)
            while writer.waiting:
                batch = self._next(writer, _BATCH)
                await self._put(batch, _WRITE_S)
                batch = []
        except asyncio.CancelledError:
            # The event loop ends. An object has one id for good, so what was half-way may well be written again.
            await self._put([*batch, *self._next(writer, _MOST_WAITING)], _LAST_CALL_S)
            raise

    def _next(self, writer: _Writer, most: int) -> list[RuntimeStateObject]:
        states: list[RuntimeStateObject] = []
        while writer.waiting and len(states) < most:
            run, model, ended_at = writer.waiting.popleft()
            try:
                states.append(summarise(run(), identity=uuid.uuid4().hex, model=model, ended_at=ended_at))
            except Exception as error:  # noqa: BLE001 - one run that cannot be summed up must not cost the others
                self._complain("write", type(error).__name__, describe_error(error))
        return states

    async def _put(self, states: Sequence[RuntimeStateObject], timeout_s: float) -> None:
        if not states:
            return
        task: asyncio.Future[Any] | None = None
        try:
            task = asyncio.ensure_future(self._store.put(states))
            await asyncio.wait({task}, timeout=timeout_s)
            if not task.done():
                self._complain("write", "timeout", f"it took more than {timeout_s:g} s")
            elif task.cancelled():
                self._complain("write", "cancelled", "it cancelled its own call")
            else:
                task.result()
        except Exception as error:  # noqa: BLE001 - a store is anybody's code, and there is nobody to raise to here
            self._complain("write", type(error).__name__, describe_error(error))
        finally:
            if task is not None:
                await stop_task(task)

    def _complain(self, what: str, kind: str, cause: str) -> None:
        told = _told_of(self._store)
        if (fault := f"{what} {kind}") in told:
            return
        told.add(fault)
        effect = "answers come without hints" if what == "read" else "finished runs are not kept"
        name = type(self._store).__name__
        _log.warning("the slot store %s cannot be %s, so %s: %s", name, _DONE[what], effect, cause)


_DONE: Final = {"read": "read", "write": "written"}


def _told_of(store: SlotStateStore) -> set[str]:
    # By identity: a store that is a dataclass has no hash.
    key = id(store)
    if key not in _told:
        _told[key] = set()
        finalize(store, _told.pop, key, None).atexit = False
    return _told[key]


def manager_for(store: SlotStateStore, loop: LoopConfig) -> RuntimeStateManager:
    """Return a manager with the settings of a loop.

    Args:
        store: Where objects are kept.
        loop: Its `hint_similarity` and `hint_timeout_s` count.

    Raises:
        UsageError: `store` is no store.
    """
    return RuntimeStateManager(store, similarity=loop.hint_similarity, timeout_s=loop.hint_timeout_s)


def model_name(client: object) -> str:
    """Return the name of the model behind a client; empty where it does not say.

    Args:
        client: Anybody's.
    """
    # AutoGen has no name for it in common; its own clients, and those derived from them, keep their arguments here.
    arguments: object = getattr(client, "_create_args", None)
    name: object = cast("Mapping[str, object]", arguments).get("model") if isinstance(arguments, Mapping) else None
    return name if isinstance(name, str) else ""
