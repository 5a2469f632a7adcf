"""Is anything late or lost? The account of every event, freshness, lag and rates, and what is wrong, in sentences."""
