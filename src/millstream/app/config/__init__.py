"""Settings and job files: TOML text to stream definitions, queries and settings.

Every mistake is told with file, line and column. Nothing here starts Spark.
"""

from millstream.app.config.job_file import Job, inspect_job, load_job
from millstream.app.config.job_queries import JobQuery

__all__ = ["Job", "JobQuery", "inspect_job", "load_job"]
