"""A Spark session from inside its driver: measured, and made elastic by `attach`."""
