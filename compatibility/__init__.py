"""Which Spark with which Python: the attach suite on every pair, each in an environment of its own."""
