"""Where a stream is, in a form that travels to other processes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tallymark.log.protocol import LogReader
from tallymark.settings import Settings


@dataclass(frozen=True, slots=True)
class LocalAddress:
    """A stream in a folder, absolute, because other processes have other working folders."""

    is_shared: ClassVar[bool] = False
    """whether several machines may use it at once"""
    retains_by_itself: ClassVar[bool] = False
    """whether it drops what is old without a keeper"""
    folder: str
    stream: str

    def open_reader(self) -> LogReader:
        """A reader of its own for the calling process; LogLost if the log has not been made yet."""
        from tallymark.log.local.reader import LocalLogReader

        return LocalLogReader(Path(self.folder), self.stream)


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """A topic of a Kafka cluster."""

    is_shared: ClassVar[bool] = True
    retains_by_itself: ClassVar[bool] = True
    brokers: tuple[str, ...]
    topic: str
    options: tuple[str, ...] = field(repr=False)

    def open_reader(self) -> LogReader:
        # Here, not above: only who has a Kafka needs its library.
        from tallymark.log.kafka.reader import KafkaLogReader

        return KafkaLogReader(self)


LogAddress = LocalAddress | KafkaAddress


def address(settings: Settings, stream: str) -> LogAddress:
    """Where a stream is, for another process to open."""
    if settings.log.kind == "local":
        return LocalAddress(str(settings.log_folder.absolute()), stream)
    return KafkaAddress(
        tuple(settings.log.brokers), f"{settings.log.topic}.{stream}", tuple(settings.log.kafka_options)
    )
