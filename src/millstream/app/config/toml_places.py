"""Where keys and values stand in a TOML text.

The standard library's parser gives values without positions; this one gives positions without
values, and may assume that the text is valid because the other has read it first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Path = tuple[str, ...]
ESCAPES = {
    "b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\",
}  # fmt: skip
BARE_END = ",]}\n#"


@dataclass(frozen=True, slots=True)
class Place:
    """Offsets: of a key's first and past its last character, and of its value."""

    key: int
    key_end: int
    value: int
    value_end: int


@dataclass(slots=True)
class Places:
    """The text and the place of every key, by its path from the top."""

    text: str
    found: dict[Path, Place] = field(default_factory=dict)

    def key(self, path: Path) -> tuple[int, int]:
        """Offset and length of a key; of the nearest table above it where it has none."""
        while path and path not in self.found:
            path = path[:-1]
        place = self.found.get(path)
        return (place.key, place.key_end - place.key) if place else (0, 1)

    def value(self, path: Path) -> tuple[int, int]:
        place = self.found.get(path)
        if place is None or place.value_end <= place.value:
            return self.key(path)
        first_line = self.text[place.value : place.value_end].split("\n")[0]
        return place.value, max(1, len(first_line))

    def line_column(self, offset: int) -> tuple[int, int]:
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def inside(self, path: Path, offset: int) -> int:
        """The offset in the file of a character of a text value."""
        place = self.found.get(path)
        if place is None:
            return self.key(path)[0]
        origins = string_origins(self.text, place.value, place.value_end)
        return origins[min(offset, len(origins) - 1)] if origins else place.value


def places_of(text: str) -> Places:
    """All places of a valid TOML text.

    >>> found = places_of('[a.b]\\nc = "x"\\n')
    >>> found.key(("a", "b", "c")), found.value(("a", "b", "c"))
    ((6, 1), (10, 3))
    """
    # the parser reads \r\n as \n; offsets must agree with what is shown
    reader = _Reader(text)
    reader.document()
    return Places(text, reader.found)


def string_origins(text: str, start: int, end: int) -> list[int]:
    """For each character of a text value, and the end of it, where it comes from."""
    quote = text[start]
    many = text.startswith(quote * 3, start)
    at, stop = (start + 3, end - 3) if many else (start + 1, end - 1)
    if many and text.startswith("\r\n", at):
        at += 2
    elif many and text.startswith("\n", at):
        at += 1
    origins: list[int] = []
    while at < stop:
        if quote == '"' and text[at] == "\\":
            at = _escape(text, at, stop, origins)
        elif text.startswith("\r\n", at):
            at += 1
        else:
            origins.append(at)
            at += 1
    return [*origins, stop]


def _escape(text: str, at: int, stop: int, origins: list[int]) -> int:
    """Passes over one escape; a backslash at the end of a line swallows the space after it."""
    follower = text[at + 1]
    if follower in ESCAPES:
        origins.append(at)
        return at + 2
    if follower in "xuU":
        origins.append(at)
        return at + 2 + {"x": 2, "u": 4, "U": 8}[follower]
    at += 1
    while at < stop and text[at].isspace():
        at += 1
    return at


class _Reader:
    """Recursive descent; keeps only where things are."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: dict[Path, Place] = {}
        self._counts: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        while self._skip(newlines=True):
            if self.text.startswith("[[", self.at):
                table = self._header(2)
            elif self.text[self.at] == "[":
                table = self._header(1)
            else:
                self._pair(table)

    def _header(self, brackets: int) -> Path:
        self.at += brackets
        self._skip()
        start = self.at
        path = self._key()
        end = self.at
        self._skip()
        self.at += brackets
        if brackets == 2:
            self._counts[path] = self._counts.get(path, -1) + 1
        for depth in range(1, len(path) + 1):
            self.found.setdefault(path[:depth], Place(start, end, start, start))
        return (*path, str(self._counts[path])) if brackets == 2 else path

    def _pair(self, table: Path) -> None:
        start = self.at
        key = self._key()
        end = self.at
        self._skip()
        self.at += 1  # the equals sign
        self._skip()
        value = self.at
        path = (*table, *key)
        self._value(path)
        for depth in range(len(table) + 1, len(path)):
            self.found.setdefault(path[:depth], Place(start, end, value, value))
        self.found[path] = Place(start, end, value, self.at)

    def _key(self) -> Path:
        parts: list[str] = []
        while True:
            parts.append(self._key_part())
            before = self.at
            self._skip()
            if not self.text.startswith(".", self.at):
                self.at = before
                return tuple(parts)
            self.at += 1
            self._skip()

    def _key_part(self) -> str:
        start = self.at
        if self.text[start] in "\"'":
            self._string()
            return _plain(self.text, start, self.at)
        while self.at < len(self.text) and (
            self.text[self.at].isalnum() or self.text[self.at] in "_-"
        ):
            self.at += 1
        return self.text[start : self.at]

    def _value(self, path: Path) -> None:
        first = self.text[self.at]
        if first in "\"'":
            self._string()
        elif first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        else:
            while self.at < len(self.text) and self.text[self.at] not in BARE_END:
                self.at += 1
            while self.text[self.at - 1].isspace():
                self.at -= 1

    def _string(self) -> None:
        quote = self.text[self.at]
        if self.text.startswith(quote * 3, self.at):
            self.at += 3
            while not self.text.startswith(quote * 3, self.at):
                self.at += 2 if quote == '"' and self.text[self.at] == "\\" else 1
            self.at += 3
            while self.text.startswith(quote, self.at):  # up to two quotes may precede the end
                self.at += 1
            return
        self.at += 1
        while self.text[self.at] != quote:
            self.at += 2 if quote == '"' and self.text[self.at] == "\\" else 1
        self.at += 1

    def _array(self, path: Path) -> None:
        self.at += 1
        index = 0
        while self._skip(newlines=True) and self.text[self.at] != "]":
            start = self.at
            element = (*path, str(index))
            self._value(element)
            self.found[element] = Place(start, self.at, start, self.at)
            index += 1
            self._skip(newlines=True)
            if self.text[self.at] == ",":
                self.at += 1
        self.at += 1

    def _inline_table(self, path: Path) -> None:
        self.at += 1
        while self._skip(newlines=True) and self.text[self.at] != "}":
            self._pair(path)
            self._skip(newlines=True)
            if self.text[self.at] == ",":
                self.at += 1
        self.at += 1

    def _skip(self, *, newlines: bool = False) -> bool:
        """Passes over space and comments; False at the end of the text."""
        while self.at < len(self.text):
            character = self.text[self.at]
            if newlines and character == "#":
                while self.at < len(self.text) and self.text[self.at] != "\n":
                    self.at += 1
            elif character in " \t" or (newlines and character in "\r\n"):
                self.at += 1
            else:
                return True
        return False


def _plain(text: str, start: int, end: int) -> str:
    """A quoted key's characters."""
    written = text[start:end]
    if written[0] == "'" or "\\" not in written:
        return written[1:-1]
    import tomllib  # noqa: PLC0415

    key: Mapping[str, int] = tomllib.loads(f"{written} = 0")
    return next(iter(key))
