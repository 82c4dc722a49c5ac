"""Penstock: elastic, cost-aware stream processing on Apache Spark."""
