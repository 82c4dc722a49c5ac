"""The Spark plane: Java, sessions, a local elastic cluster, executors, measuring and attaching.

Only this room and `channels` import pyspark, and only inside functions, so that `import penstock`
starts nothing. Read in this order: `launching`, `settings`, `managers`, `executors`, `session`, `unit`.
"""
