"""A retry budget, so that retries do not double the load on a struggling collector."""


class RetryBudget:
    """Each first attempt earns a fifth of a retry, each second ten; what is saved is bounded.

    So retries are at most 20 % of the first attempts, beyond a floor of 10 a second. A retry without budget waits.
    """

    def __init__(self, *, now: float, ratio: float = 0.2, per_second: float = 10.0, most: float = 20.0) -> None:
        self._ratio, self._per_second, self._most = ratio, per_second, most
        self._tokens, self._at = most, now

    def earn(self) -> None:
        self._tokens = min(self._most, self._tokens + self._ratio)

    def ready_at(self, now: float) -> float:
        """When a retry may go, if nothing is earned until then."""
        missing = 1.0 - self._saved(now)
        return now if missing <= 1e-9 else now + missing / self._per_second

    def spend(self, now: float) -> None:
        self._tokens, self._at = self._saved(now) - 1.0, now

    def _saved(self, now: float) -> float:
        return min(self._most, self._tokens + (now - self._at) * self._per_second)
