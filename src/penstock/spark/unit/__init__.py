"""One unit as one Spark application: its plan, its query, its driver process and what it tells."""
