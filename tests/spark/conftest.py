"""One Spark session for all tests here, which ends with them; every test has a data folder of its own."""

from collections.abc import Iterator

import pytest

from counting import CountingPath
from tallymark.pipeline.spark.session import start_session
from tallymark.settings import Settings


@pytest.fixture(scope="package")
def spark(tmp_path_factory):
    session = start_session(Settings(data=str(tmp_path_factory.mktemp("spark"))))
    yield session
    session.stop()


@pytest.fixture
def path(build, spark, tmp_path) -> Iterator[CountingPath]:
    made = CountingPath(build, spark, Settings(data=str(tmp_path / "data")))
    yield made
    made.close()
