"""Cluster managers: who starts executors for the Spark plane."""
