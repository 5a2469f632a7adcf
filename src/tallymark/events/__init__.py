"""What an event and a frame are: model, validation, clocks, ids, labels, codec. Pure: no I/O."""
