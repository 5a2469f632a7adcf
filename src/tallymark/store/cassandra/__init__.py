"""The store of a cluster, on Cassandra."""
