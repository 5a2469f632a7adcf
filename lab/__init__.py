"""Real servers on loopback, from packages: Kafka, Cassandra, Spark's standalone cluster. For tests and benchmarks."""
