"""Millstream: many continuous queries, one shared dataflow, on Apache Spark."""

__version__ = "0.1.0"
