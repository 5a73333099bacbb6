"""Settings and job files: TOML text to stream definitions, queries and settings.

Every mistake is told with file, line and column. Nothing here starts Spark.
"""

from millstream.app.config.job_file import Job, JobQuery, inspect_job, load_job

__all__ = ["Job", "JobQuery", "inspect_job", "load_job"]
