"""One Spark session for all tests here, which ends with them; every test has a data folder of its own."""

from collections.abc import Iterator

import pytest

from counting import CountingPath
from tallymark.pipeline.spark.context import start_spark
from tallymark.settings import Settings


@pytest.fixture(scope="package")
def spark(tmp_path_factory):
    context = start_spark(Settings(data=str(tmp_path_factory.mktemp("spark"))))
    yield context
    context.stop()


@pytest.fixture
def path(build, spark, tmp_path) -> Iterator[CountingPath]:
    made = CountingPath(build, spark, Settings(data=str(tmp_path / "data")))
    yield made
    made.close()
