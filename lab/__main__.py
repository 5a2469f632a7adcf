"""`python -m lab`: fetch what the real servers need, so that no test waits for it."""

from lab import jars

for artifacts in (jars.KAFKA, jars.CASSANDRA):
    print(f"{artifacts[0].name} {artifacts[0].revision}: {jars.fetch(artifacts)}")
