"""Copies of others' homes as threads: one for each, asleep in a long poll until there are commits.

Homes that were adopted are run by processes of their own, which the launcher watches over.
"""

import threading
from collections.abc import Callable

from millstream.control.protocol.commands import KeepReplicas
from millstream.control.protocol.replies import Replicas
from millstream.edge.replicas.launching import Launcher
from millstream.store.machine_failures import first_line
from millstream.store.replicas.keeper import ReplicaKeeper

WAIT_S = 15.0
PATIENCE_S = (0.2, 3.0)  # between questions to a home that does not answer: at first, at most


class Followers:
    """Lets the copies of one keeper grow."""

    def __init__(
        self, keeper: ReplicaKeeper, launcher: Launcher, say: Callable[[str], None]
    ) -> None:
        self.keeper, self._launcher, self._say = keeper, launcher, say
        keeper.say = say
        self._threads: dict[str, threading.Thread] = {}
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        for told in self.keeper.damaged:
            self._say(told)
        for name, home in self.keeper.adopted().items():
            self._launcher.launch(name, home)
        self._look()

    def stop(self) -> None:
        self._stopping.set()
        self._launcher.stop()

    def keep(self, command: KeepReplicas) -> Replicas:
        with self._lock:
            told = self.keeper.keep(command)
        self._look()
        return told

    def _look(self) -> None:
        with self._lock:
            for name in list(self.keeper.replicas):
                running = self._threads.get(name)
                if running is None or not running.is_alive():
                    thread = threading.Thread(
                        target=self._run, args=(name,), name=f"millstream-replica {name}",
                        daemon=True,
                    )  # fmt: skip
                    self._threads[name] = thread
                    thread.start()

    def _run(self, name: str) -> None:
        patience, told = PATIENCE_S[0], ""
        while not self._stopping.is_set():
            replica = self.keeper.replicas.get(name)
            if replica is None or replica.note.state != "following":
                return
            try:
                self.keeper.turn(name, WAIT_S)
                patience, told = PATIENCE_S[0], ""
            except Exception as error:
                if self._stopping.is_set():
                    return
                trouble = f"the home of {name} cannot be followed: {first_line(error)}"
                if trouble != told:
                    self._say(trouble)
                told = trouble
                self._stopping.wait(patience)
                patience = min(patience * 2, PATIENCE_S[1])
