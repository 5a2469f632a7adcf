"""The figures: `python -m bench` measures each claim of the README and prints one table. One module a benchmark."""
