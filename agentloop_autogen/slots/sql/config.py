"""Settings of the SQL store as they are dumped and loaded."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr

__all__ = ["SQLSlotStateStoreConfig"]


class SQLSlotStateStoreConfig(BaseModel):
    """Settings of a `SQLSlotStateStore`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = None
    """A path or a URL, without a password; None: the embedded default."""
    password: SecretStr | None = None
    """Masked in JSON; a masked one is read as none, and `PGPASSWORD` or `~/.pgpass` takes its place."""
    keep_request_text: bool = True
    max_age_days: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    max_objects: int | None = Field(default=None, ge=1)
    timeout_s: float = Field(default=5.0, gt=0.0, allow_inf_nan=False)
