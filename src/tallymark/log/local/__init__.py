"""The log of one machine: segments, indexes and a mark per partition, in files under the data folder."""
