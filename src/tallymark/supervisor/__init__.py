"""What runs behind `tallymark up`: child processes that are started, watched, restarted and stopped in order."""
