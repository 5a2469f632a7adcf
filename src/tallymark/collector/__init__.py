"""HTTP -> validated events -> frames -> log. Answers when the log says that they are durable."""
