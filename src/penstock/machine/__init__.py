"""This machine: processes, folders, Java, jars and locks. Knows neither Spark nor the domain."""
