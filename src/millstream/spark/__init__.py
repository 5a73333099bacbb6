"""The ports of the engine on Spark, of any version since 4.0."""

from pyspark import __version__ as _version

from millstream.core.errors import UsageError as _UsageError

if int(_version.partition(".")[0]) < 4:
    raise _UsageError(
        f"Millstream needs Spark 4.0 or later, and this is {_version}",
        hint="pip install 'millstream[spark]', or choose a runtime with Spark 4",
    )
