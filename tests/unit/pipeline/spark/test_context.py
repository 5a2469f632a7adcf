"""How Spark is set up."""

from tallymark.pipeline.spark.context import _configuration
from tallymark.settings import Settings


def test_a_failed_task_has_four_attempts():
    assert _configuration(Settings())["spark.master"] == "local[*,4]"
