"""The one picture of a running system, and what it says needs attention."""
