"""Events as the bytes of one request, cheap enough not to disturb what is measured."""

from functools import lru_cache
from typing import Any

from tallymark.load.plan import Indices, Plan

EVENT_BYTES = 110
METRIC_BYTES = 12


class Encoder:
    """One %-format over a whole batch: about 0.6 us per event; objects and a JSON library take 3."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._names = [plan.key_name(key) for key in range(plan.key_count)]
        head = f'{{"event":"{plan.event}","id":"%016x","time":%d,"props":{{"{plan.key_label}":"%s"}}'
        if plan.servers:
            metrics = ",".join(f'"m{metric}":%d' for metric in range(plan.metrics))
            template = f'{head},"values":{{{metrics}}}}}'
        else:
            template = f'{head},"value":%d}}'
        self._template = lru_cache(maxsize=8)(lambda events: "[" + ",".join([template] * events) + "]")

    def encode(self, sources: Indices) -> bytes:
        """A JSON array of the events."""
        plan, names = self._plan, self._names
        fields: list[list[Any]] = [
            plan.ids(sources).tolist(),
            plan.times(sources).tolist(),
            [names[key] for key in plan.key_indices(sources).tolist()],
        ]
        if plan.servers:
            fields.extend(plan.metric_values(sources).T.tolist())
        else:
            fields.append(plan.values(sources).tolist())
        flat: list[Any] = [None] * (len(fields) * len(sources))
        for place, column in enumerate(fields):
            flat[place :: len(fields)] = column
        return (self._template(len(sources)) % tuple(flat)).encode("ascii")


def event_bytes(plan: Plan) -> int:
    """Roughly what one event weighs in a request."""
    return EVENT_BYTES + METRIC_BYTES * plan.metrics
