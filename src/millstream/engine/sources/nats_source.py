"""Messages of a NATS JetStream stream: by their numbers, which the ledger keeps with the rows.

JetStream numbers the messages of a stream. The ledger notes the last number in the transaction that
publishes the rows, and an ordered consumer begins behind it, so each message counts once, whatever
was killed when; the server keeps nothing for this reader. The source reports messages that the
server dropped before they were read; it never skips them silently.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.core.errors import MillstreamError, UsageError
from millstream.core.extras import told_where_missing
from millstream.engine.sources.broker_source import CONGESTED_S, BrokerSource, text_of

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

POLL_S = 0.1
GATHER_S = 0.002  # further messages are waited for so long before what has come is kept
ANSWER_S = 10.0
ACCESS = ("user", "password", "token", "user_credentials")  # options of who we are


class NatsSource(BrokerSource):
    """One subject, or all that a pattern matches, as a stream."""

    kind = "nats"
    of_message = ("subject", "value", "sequence", "timestamp")

    def _read(self, options: Mapping[str, Any]) -> None:
        with told_where_missing():
            import nats  # noqa: F401, PLC0415  (an extra)
        asyncio.run(self._connected(options))

    async def _connected(self, options: Mapping[str, Any]) -> None:
        import nats  # noqa: PLC0415

        async def quiet(error: Exception) -> None:
            """The library would print it; what matters comes back as an answer."""

        servers = [one.strip() for one in str(options["servers"]).split(",")]
        access = {k: options[k] for k in ACCESS if options.get(k) is not None}
        try:
            client = await nats.connect(
                servers, connect_timeout=ANSWER_S, allow_reconnect=False, error_cb=quiet, **access
            )
        except (OSError, nats.errors.Error) as error:
            raise self._trouble(f"{type(error).__name__}: {error}") from None
        try:
            await self._follow(client, client.jetstream(), options)
        except nats.js.errors.NotFoundError as error:
            raise self._gone(str(error)) from None
        finally:
            await client.close()

    async def _follow(
        self, client: "Client", server: "JetStreamContext", options: Mapping[str, Any]
    ) -> None:
        from nats.js.api import ConsumerConfig, DeliverPolicy  # noqa: PLC0415

        name = options.get("stream") or await server.find_stream_name_by_subject(self._topic)
        state = (await server.stream_info(str(name))).state
        begin = self._begin(state.first_seq, state.last_seq)
        behind = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=max(1, begin)
        )
        reader = await server.subscribe(
            self._topic, stream=str(name), ordered_consumer=True, config=behind
        )
        finite = self.definition.source.get("trigger") == "available_now"
        info = await reader.consumer_info()
        # What the server has handed over already waits here: it is no longer pending, nor read.
        handed = info.delivered.consumer_seq if info.delivered else 0
        done = finite and not (info.num_pending or handed)
        while not self._stopped.is_set():
            if done:
                self.appender.finish()
                self._setting.arrived(self.definition.name)
                return
            if not client.is_connected:
                raise self._trouble("the connection was lost")
            if self._setting.congested():
                await asyncio.sleep(CONGESTED_S)
                continue
            messages = await self._taken(reader)
            if messages:
                self._keep(messages)
                about = messages[-1].metadata
                done = finite and (
                    not about.num_pending or about.sequence.stream >= (state.last_seq or 0)
                )

    def _begin(self, first: int, last: int) -> int:
        """The number to go on with; where a stream begins is decided once."""
        known = self._position().get("sequence")
        if known is not None:
            if known + 1 < first:
                raise UsageError(
                    f"stream {self.definition.name}: messages of {self._topic} are gone",
                    detail=f"the server begins with {first}, and {known + 1} comes next",
                    hint="keep messages for longer at the server; here a new run is needed",
                )
            return int(known) + 1
        latest = self.definition.source.get("start") == "latest"
        begin = last + 1 if latest else max(1, first)
        appender, stream = self.appender, self.appender.stream
        with appender.lock, appender.ledger.transaction() as ledger:
            ledger.set_ingest_position(stream, {"sequence": begin - 1})
        return begin

    async def _taken(self, reader: Any) -> "list[Msg]":
        """About a batch of messages, none of which was counted before."""
        import nats  # noqa: PLC0415

        last = int(self._position()["sequence"])
        messages: list[Msg] = []
        wait_s = POLL_S
        while len(messages) < self._setting.batch_rows and not self._stopped.is_set():
            try:
                message = await reader.next_msg(wait_s)
            except nats.errors.TimeoutError:
                break
            if message.metadata.sequence.stream > last:
                messages.append(message)
                last = message.metadata.sequence.stream
            wait_s = GATHER_S
        return messages

    def _keep(self, messages: "Sequence[Msg]") -> None:
        rows = [self._row(self._own(m), m.data) for m in messages]
        self._append(rows, {"sequence": messages[-1].metadata.sequence.stream})

    def _own(self, message: "Msg") -> dict[str, Any]:
        about = message.metadata
        return {
            "subject": message.subject,
            "value": text_of(message.data),
            "sequence": about.sequence.stream,
            "timestamp": self._stamp("timestamp", int(about.timestamp.timestamp() * 1000)),
        }

    def _gone(self, words: str) -> MillstreamError:
        return MillstreamError(
            f"stream {self.definition.name}: no stream of JetStream has {self._topic}",
            detail=words,
            hint="make one at the server, or name another: it is tried again, and nothing is lost",
        )
