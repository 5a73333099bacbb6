"""Other processors that balance without a manager: where they answer, and messages to them.

Addresses come from the command line, where only an URL is known at first, and from whoever writes.
News go out in threads and may be lost: the protocol bears that (decide/balance/protocol.py).
Commands wait for their replies. Decides nothing.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from millstream.client.http import HttpClient, json_of
from millstream.control.moves.handover import PeerCommand
from millstream.control.protocol.envelope import PATH, Envelope, Introduce, read_replies
from millstream.control.protocol.replies import Refusal, Reply
from millstream.core.errors import MillstreamError
from millstream.decide.balance.protocol import Message

NEWS_SECONDS = 5.0
COMMAND_SECONDS = 30.0
SENDERS = 4


class PeerBook:
    """Who there is; `me` and `url` say who writes."""

    def __init__(
        self,
        me: str,
        epoch: int,
        url: Callable[[], str],
        streams: Callable[[], Sequence[str]],
        learn: Callable[[str, str], None],
        *,
        token: str | None = None,
        verify: str | bool = True,
    ) -> None:
        self.me, self._epoch, self._url = me, epoch, url
        self._streams, self._learn = streams, learn
        self._client = HttpClient(token, verify)
        self._pool = ThreadPoolExecutor(SENDERS, thread_name_prefix="millstream-news")
        self._lock = threading.Lock()
        self._urls: dict[str, str] = {}
        self._entered: dict[str, str] = {}  # base stream: where its rows enter
        self._unmet: set[str] = set()  # addresses whose processors are not known yet
        self._closed = False
        self.lost = 0  # messages that nobody took

    def add(self, urls: Iterable[str]) -> None:
        """Addresses to ask who is there."""
        with self._lock:
            self._unmet.update(url.rstrip("/") for url in urls if url)

    def met(self, processor: str, url: str, streams: Iterable[str] = ()) -> None:
        """Somebody has said where it is."""
        if processor == self.me:
            return
        with self._lock:
            self._urls[processor] = url.rstrip("/")
            self._unmet.discard(url.rstrip("/"))
            self._entered |= dict.fromkeys(streams, processor)
        self._learn(processor, url)

    def lose(self, processor: str) -> None:
        """Somebody has left, or is silent: nothing is asked of it before it is met again."""
        with self._lock:
            self._urls.pop(processor, None)

    def meet(self, peers: Mapping[str, str]) -> None:
        """A manager has said who there is, by name and address."""
        for name, url in peers.items():
            self.met(name, url)

    def ask_around(self) -> None:
        """Asks the addresses that are still without a name."""
        with self._lock:
            unmet = sorted(self._unmet)
        for url in unmet:
            with suppress(MillstreamError, KeyError, TypeError):
                answer = self._client.send("GET", f"{url}/health", answer_s=NEWS_SECONDS)
                name = str(json_of(answer)["processor"])
                if name == self.me:
                    with self._lock:
                        self._unmet.discard(url)
                else:
                    self.met(name, url)

    @property
    def names(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._urls))

    def url_of(self, processor: str) -> str | None:
        with self._lock:
            return self._urls.get(processor)

    def entered_at(self) -> dict[str, str]:
        with self._lock:
            return dict(self._entered)

    # -- sending --------------------------------------------------------------------------------

    def tell(self, to: str, messages: Sequence[Message]) -> None:
        """News, as well as it goes."""
        if not self._closed:
            with suppress(RuntimeError):  # it is closing
                self._pool.submit(self._tell, to, messages)

    def _tell(self, to: str, messages: Sequence[Message]) -> None:
        replies = self._post(to, messages, NEWS_SECONDS)
        if not replies or any(isinstance(reply, Refusal) for reply in replies):
            self.lost += 1

    def ask(self, to: str, command: PeerCommand) -> Reply | None:
        """A command of a move; None where nobody answers."""
        replies = self._post(to, (command,), COMMAND_SECONDS)
        return replies[-1] if replies else None

    def _post(
        self, to: str, messages: Sequence[Message | PeerCommand], seconds: float
    ) -> tuple[Reply, ...]:
        url = self.url_of(to)
        if url is None or self._closed:
            return ()
        me = Introduce(self._url(), tuple(self._streams()))
        envelope = Envelope(self._epoch, 0, to, (me, *messages), self.me, "processor")
        try:
            answer = self._client.post(url + PATH, envelope, answer_s=seconds)
            return read_replies(envelope, answer)
        except MillstreamError:
            return ()

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()
