"""The dataflow's own module under its former name."""

from millstream.share.dataflow import *  # noqa: F403
