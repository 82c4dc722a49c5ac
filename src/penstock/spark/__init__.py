"""The Spark plane: Java, sessions, a local elastic cluster, executors, measuring and attaching.

Only this room and `channels` import pyspark, and only inside functions, so that `import penstock`
starts nothing. Read in this order: `java`, `settings`, `processes`, `local_cluster`, `executors`,
`agent`, `attach`.
"""
