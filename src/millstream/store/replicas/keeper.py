"""The replicas of one processor: of its own home at others, and of others' homes here.

Carries out what a manager says of them and tells how far they are. Copies lie beside the ledger, a
folder for each home. Decides nothing; who calls `turn` lets a copy grow.
"""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from millstream.control.protocol.commands import Home, KeepReplicas
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import KeptHome, Replicas
from millstream.core.errors import DamageError, MillstreamError, RefusedError
from millstream.core.json_files import read_sealed
from millstream.store.integrity.seal import broken
from millstream.store.moves.records import Place
from millstream.store.replicas.commit_log import CommitLog
from millstream.store.replicas.records import ADOPTED, FOLLOWING, Configuration, HomeSource, Note
from millstream.store.replicas.replica import Replica

FOLDER = "replicas"
NOTE = "replica.json"
UNKNOWN = 1 << 40  # a configuration beyond all: what a copy was is not known any more
Launch = Callable[[str, Path], None]  # runs a processor on an adopted home


class ReplicaKeeper:
    def __init__(
        self,
        me: str,
        home: Path,
        log: CommitLog,
        reach: Callable[[Place], HomeSource],
        launch: Launch = lambda name, home: None,  # noqa: ARG005
        end: Callable[[str], None] = lambda name: None,  # noqa: ARG005
    ) -> None:
        """`launch` runs an adopted home; `end` ends that, where yet another has it by now."""
        self.me, self._folder, self.log = me, home / FOLDER, log
        self._followers: tuple[Peer, ...] = ()
        self._reach, self._launch, self._end = reach, launch, end
        self.replicas: dict[str, Replica] = {}
        self.say: Callable[[str], None] = lambda text: None  # noqa: ARG005
        self.damaged: list[str] = []  # what was found when it began
        self._spoilt: dict[str, KeptHome] = {}  # copies that were found damaged when needed
        for found in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if (found / NOTE).exists():
                self._take_up(found)
            else:  # begun and never noted, or about to go
                shutil.rmtree(found, ignore_errors=True)

    def _take_up(self, folder: Path) -> None:
        """A copy of former times. One that is damaged is put beside, and a new one begins; one
        that was a home itself stays where it is."""
        try:
            known = Replica(folder, self.me, say=self._say)
        except (DamageError, sqlite3.DatabaseError, TypeError) as error:
            place = folder
            if ADOPTED.encode() not in (folder / NOTE).read_bytes():
                name, had = unquote(folder.name), _complete(folder / NOTE)
                self._spoilt[name] = KeptHome(0, 0, 0, "damaged", had)
                place = self._put_aside(folder)
            told = error.message if isinstance(error, DamageError) else str(error)
            self.damaged.append(
                f"the copy of a home in {folder} is damaged ({told}) and lies in {place} now"
            )
        else:
            self.replicas[known.note.processor] = known

    def _put_aside(self, folder: Path) -> Path:
        number, aside = 1, self._folder.with_name(f"{FOLDER}-damaged")
        aside.mkdir(mode=0o700, exist_ok=True)
        while (place := aside / f"{folder.name}-{number}").exists():
            number += 1
        return folder.rename(place)

    def _say(self, text: str) -> None:
        self.say(text)

    def close(self) -> None:
        for replica in self.replicas.values():
            replica.close()

    def keep(self, command: KeepReplicas) -> Replicas:
        """What a manager says; tells what there is."""
        names = tuple(peer.processor for peer in command.followers)
        self.log.configure(Configuration(command.number, command.wanted, names))
        if command.number >= self.log.configuration.number:
            self._followers = command.followers
        for home in command.homes:
            try:
                self._keep(home)
            except DamageError as error:
                self._spoil(home.owner.processor, error)
            except sqlite3.DatabaseError as error:
                if broken(error):
                    self._spoil(home.owner.processor, error)
            except MillstreamError:
                continue  # told in what there is, and said again
        return self.told()

    def _spoil(self, name: str, error: Exception) -> None:
        """A copy cannot stand in for its home: it is put beside, and that is told. What was
        adopted before stays where it is."""
        spoilt = self.replicas.get(name)
        if spoilt is None or spoilt.note.state == ADOPTED:
            return
        note = spoilt.note
        had = max(note.complete, note.had)
        del self.replicas[name]
        spoilt.close()
        place = self._put_aside(spoilt.folder)
        self._spoilt[name] = KeptHome(note.number, 0, 0, "damaged", had)
        told = error.message if isinstance(error, DamageError) else str(error)
        self._say(f"the copy of {name} here is of no use: {told}; it lies in {place} now")

    def _keep(self, home: Home) -> None:
        name = home.owner.processor
        spoilt = self._spoilt.pop(name, None) if home.role in ("follow", "forget") else None
        had = min(spoilt.had, home.number) if spoilt is not None else 0
        known = self.replicas.get(name)
        if known is not None and home.number < known.note.number:
            return  # said before what it has heard since
        if known is not None and self._elsewhere(known.note, home):
            self._end(name)  # it was lost here as well, and goes on with yet another
            known.forget()
            del self.replicas[name]
            known = None
        match home.role:
            case "follow" if known is None:
                note = Note(name, home.owner.url, home.number, had=had)
                folder = self._folder / quote(name, safe="")
                self.replicas[name] = Replica(folder, self.me, note, self._say)
            case "follow":
                assert known is not None
                known.follow(home.owner.url, home.number)
            case "fence" if known is not None:
                known.fence()
            case "adopt" if known is not None:
                known.adopt(home.owner.epoch)
                self._launch(name, known.folder)
            case "forget" if known is not None and known.note.state != ADOPTED:
                del self.replicas[name]
                known.forget()

    def _elsewhere(self, note: Note, home: Home) -> bool:
        later = home.number > note.number and home.role == "follow"
        return note.state == ADOPTED and later

    def told(self) -> Replicas:
        mine = self.log.configuration
        homes = {
            name: KeptHome(r.note.number, r.note.complete, r.number, r.note.state, r.note.had)  # type: ignore[arg-type]
            for name, r in self.replicas.items()
        }
        homes = {**self._spoilt, **homes}
        return Replicas(mine.number, mine.followers, self.log.open, homes)

    def turn(self, name: str, wait: float = 0.0) -> int:
        """Lets a copy grow; gives the number of commits that came."""
        replica = self.replicas.get(name)
        if replica is None or replica.note.state != FOLLOWING:
            return 0
        return replica.turn(self._reach(Place(name, replica.note.url)), wait)

    def others(self) -> list[tuple[str, HomeSource]]:
        """Those who keep a copy of this home, as last told."""
        found = []
        for peer in self._followers:
            with suppress(MillstreamError):  # nobody has said where that one is
                found.append((peer.processor, self._reach(Place(peer.processor, peer.url))))
        return found

    def copied(self, owner: str, file: str) -> Path:
        """Where a file of a copy lies here."""
        known = self.replicas.get(owner)
        if known is None:
            raise RefusedError("unknown", f"there is no copy of the home of {owner[:100]} here")
        return known.file(file)

    def adopted(self) -> dict[str, Path]:
        """Homes that were taken over here: somebody has to run them."""
        found = self.replicas.items()
        return {name: r.folder for name, r in found if r.note.state == ADOPTED}


def _complete(note: Path) -> int:
    """The last configuration under which a copy was complete, by its note."""
    try:
        told = Note(**(read_sealed(note, "") or {}))
    except (DamageError, TypeError):
        return UNKNOWN
    return max(told.complete, told.had)
