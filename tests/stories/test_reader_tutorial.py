"""The tutorial of docs/reader.md, run as it stands."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "reader.md"


def test_every_block_of_the_tutorial_runs_and_finds_what_it_says(tallymark):
    text = DOCUMENT.read_text().replace("http://127.0.0.1:8080", tallymark.url)
    tutorial = text[text.index("## A tutorial") : text.index("## What can be asked")]
    blocks = re.findall(r"```python\n(.*?)```", tutorial, re.S)
    assert len(blocks) >= 10
    exec(compile("\n".join(blocks), str(DOCUMENT), "exec"), {"__name__": "tutorial"})
