"""What runs behind `tallymark agent`: this machine's figures and its applications' metrics, one event a second."""
