"""The log on Kafka: a stream is a topic, a frame is a message, a partition is a partition."""
