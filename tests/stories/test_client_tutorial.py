"""The tutorial of docs/client.md, run as it stands."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "client.md"


def test_every_block_of_the_tutorial_runs_and_what_it_sent_is_counted(tallymark):
    text = DOCUMENT.read_text().replace("http://127.0.0.1:8080", tallymark.url)
    tutorial = text[text.index("## A tutorial") : text.index("## When the buffer is full")]
    blocks = re.findall(r"```python\n(.*?)```", tutorial, re.S)
    assert len(blocks) >= 7
    exec("\n".join(blocks), {"__name__": "tutorial"})
    tallymark.wait_until(
        lambda: tallymark.ask("total", "events", "event=lesson")["value"] == {"count": 2},
        seconds=60,
        what="both lessons counted",
    )
    tallymark.wait_until(
        lambda: tallymark.ask("total", "events", "event=lesson_order")["value"] == {"count": 1},
        seconds=60,
        what="the order once",
    )
