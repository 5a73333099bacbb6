"""Whether a processor does not answer, in words, and what a person can do about it.

A processor is silent when nothing was heard of it for a while; its queries do not run as soon as
some messages in a row went unanswered. Reads the state, changes nothing.
"""

from millstream.control.manager.state import Live, ManagerState

WAYS = "start it again with its home, or, if that is gone, millstream remove --lost {}"
FAILURES_AWAY = 3  # messages in a row that nobody answered


def quiet(live: Live) -> bool:
    """Whether what a processor has does not run, as far as is known."""
    return live.state == "silent" or live.failures >= FAILURES_AWAY


def silence(state: ManagerState, processor: str) -> str:
    """Why nothing can be moved away from a processor: it has not been heard for a while."""
    live = state.live.get(processor)
    if live is None or live.state != "silent":
        return ""
    return f"processor {processor} has been silent for {state.now_s - live.heard_s:.0f} s"
