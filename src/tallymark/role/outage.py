"""A failure that repeats, logged when it starts, changes and ends instead of every time."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class Outage:
    """`with outage.tolerated():` around each attempt: an error is logged if it is news, and goes no further.

    `failing` is followed by the error. Errors that are not `expected` are bugs, and logged with their traceback.
    """

    def __init__(
        self,
        logger: logging.Logger,
        failing: str,
        *,
        recovered: str = "",
        expected: type[Exception] | tuple[type[Exception], ...] = Exception,
    ) -> None:
        self._logger, self._failing, self._recovered, self._expected = logger, failing, recovered, expected
        self._last = ""

    @property
    def is_on(self) -> bool:
        """Whether the last attempt failed."""
        return bool(self._last)

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.failed(error)
        else:
            self.over()

    def failed(self, error: Exception) -> None:
        message = str(error) or type(error).__name__
        if message != self._last:
            self._last = message
            is_bug = not isinstance(error, self._expected)
            self._logger.warning("%s: %s", self._failing, message, exc_info=error if is_bug else None)

    def over(self) -> None:
        if self._last and self._recovered:
            self._logger.info("%s", self._recovered)
        self._last = ""
