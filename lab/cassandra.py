"""A real Cassandra of one node on loopback."""

from pathlib import Path
from types import TracebackType
from typing import Self

from lab import jars
from lab.process import ServerProcess, free_ports

_YAML = """cluster_name: lab
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "127.0.0.1:{storage}"}}]
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: {storage}
native_transport_port: {cql}
endpoint_snitch: SimpleSnitch
data_file_directories: ["{folder}/data"]
commitlog_directory: {folder}/commitlog
saved_caches_directory: {folder}/saved_caches
hints_directory: {folder}/hints
cdc_raw_directory: {folder}/cdc_raw
commitlog_sync: {sync}
{sync_period}
commitlog_segment_size: 16MiB
commitlog_total_space: 512MiB
memtable_heap_space: 256MiB
memtable_offheap_space: 128MiB
file_cache_size: 64MiB
concurrent_reads: 8
concurrent_writes: 16
"""
# `periodic` is Cassandra's own default: a node that is killed loses up to 10 s, which its replicas have. With `batch` a
# write is answered when it is on disk, so that a node alone can be killed too; a conditional write then waits longer.
_SYNC = {"periodic": "commitlog_sync_period: 10000ms", "batch": ""}

_LOGBACK = """<configuration><appender name="S" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%-5level %date %F:%L - %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="S"/></root>
<logger name="org.apache.cassandra.service.CassandraDaemon" level="INFO"/></configuration>
"""
# What Cassandra 5 reaches into on Java 17; sufficient, not proved to be the least.
_EXPORTS = (
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "java.base/java.lang.ref",
    "java.base/java.lang.reflect",
    "jdk.unsupported/sun.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
)
_OPENS = (
    "java.base/java.lang.module",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
    "java.base/sun.nio.ch",
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
)


class Cassandra:
    """`with Cassandra(folder) as cassandra:` gives a node that answers CQL at `cassandra.port`."""

    def __init__(self, folder: Path, *, heap: str = "768m", sync: str = "periodic") -> None:
        self._folder = folder.absolute()
        self._heap = heap
        self._sync = sync
        self.port, self._storage_port = free_ports(2)
        self._process: ServerProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Starts it, again with the data it had, and waits until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        yaml = _YAML.format(
            folder=self._folder,
            cql=self.port,
            storage=self._storage_port,
            sync=self._sync,
            sync_period=_SYNC[self._sync],
        )
        (self._folder / "cassandra.yaml").write_text(yaml)
        (self._folder / "logback.xml").write_text(_LOGBACK)
        self._process = ServerProcess(self._command(), log=self._folder / "cassandra.log")
        self._process.wait_for_port(self.port, deadline_s=180)

    def pause(self) -> None:
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    def kill(self) -> None:
        self._running().kill()

    def stop(self) -> None:
        if self._process is not None:
            # Nothing of a test's data is needed afterwards: a flush of all tables would only take time.
            self._process.kill()
            self._process = None

    def _running(self) -> ServerProcess:
        if self._process is None:
            raise RuntimeError("Cassandra was not started")
        return self._process

    def _command(self) -> list[str | Path]:
        folder, library = self._folder, jars.fetch(jars.CASSANDRA)
        options = [
            f"-Xms{self._heap}",
            f"-Xmx{self._heap}",
            "-XX:+UseG1GC",
            "-Xss256k",
            "-XX:MaxDirectMemorySize=256m",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djdk.attach.allowAttachSelf=true",
            f"-javaagent:{next(library.glob('jamm-*.jar'))}",
            *(part for each in _EXPORTS for part in ("--add-exports", f"{each}=ALL-UNNAMED")),
            *(part for each in _OPENS for part in ("--add-opens", f"{each}=ALL-UNNAMED")),
            f"-Dcassandra.config=file://{folder}/cassandra.yaml",
            f"-Dcassandra.storagedir={folder}",
            f"-Dcassandra.logdir={folder}",
            f"-Dlogback.configurationFile={folder}/logback.xml",
            "-Dcassandra-foreground=yes",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.ring_delay_ms=100",
            "-Dcassandra.superuser_setup_delay_ms=0",
            "-Dio.netty.noUnsafe=false",
            "-Djava.net.preferIPv4Stack=true",
            f"-Djava.io.tmpdir={folder}",
        ]
        # Java 21 refuses the security manager that Cassandra 5.0 sets, unless told.
        options.append("-Djava.security.manager=allow")
        return [jars.java(), *options, "-cp", f"{library}/*", "org.apache.cassandra.service.CassandraDaemon"]
