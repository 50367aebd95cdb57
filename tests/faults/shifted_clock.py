"""Put on a worker's PYTHONPATH as sitecustomize: its host's clock is wrong by SHIFT_S seconds."""

import datetime
import os
import time

_SHIFT_S = float(os.environ["SHIFT_S"])
_time, _datetime = time.time, datetime.datetime


class _AnyDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _datetime)


class _Shifted(_datetime, metaclass=_AnyDatetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _datetime:  # type: ignore[override]
        return _datetime.now(tz) + datetime.timedelta(seconds=_SHIFT_S)

    @classmethod
    def utcnow(cls) -> _datetime:  # type: ignore[override]
        return cls.now(datetime.UTC).replace(tzinfo=None)


time.time = lambda: _time() + _SHIFT_S
datetime.datetime = _Shifted  # type: ignore[misc]
