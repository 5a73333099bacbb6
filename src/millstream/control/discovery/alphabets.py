"""The encoding of text that is neither Unicode nor Western European, from its letters.

In Western European text letters beyond ASCII stand alone among others. Where they make whole words,
the text is of another alphabet, and the encoding is the one that reads it as letters of one.
"""

import re
from collections.abc import Callable

BEYOND_ASCII = re.compile(rb"[\x80-\xff]+")
WITHIN_WORDS = re.compile(rb"[A-Za-z][\x80-\xff]")
LETTERS_TOGETHER = 2.0  # of other alphabets, in the mean
BYTES = 1 << 16  # that are looked at
MOSTLY = 0.9
KANA = range(0x3041, 0x3100)
IDEOGRAPHS = range(0x4E00, 0xA000)
HANGUL = range(0xAC00, 0xD7A4)
CYRILLIC = range(0x0400, 0x0460)
GREEK = range(0x0384, 0x03CF)
SIGNS = range(0x3000, 0x3041), range(0xFF01, 0xFF61)  # of ideographs' width
FREQUENT = 0.3  # of all letters are the six or seven most frequent ones; by chance it is a fifth


def other_alphabet(content: bytes) -> str:
    """The encoding of text in an alphabet other than the Latin one; empty where it is Latin.

    >>> other_alphabet("дата;город\\n".encode("cp1251"))
    'windows-1251'
    >>> other_alphabet("Tag;Größe".encode("cp1252"))
    ''
    >>> other_alphabet("日時,場所,これは\\n".encode("shift_jis"))
    'Shift_JIS'
    """
    content = content[:BYTES].rpartition(b"\n")[0] or content[:BYTES]
    together = BEYOND_ASCII.findall(content)
    if not together or sum(map(len, together)) < LETTERS_TOGETHER * len(together):
        return ""
    if len(WITHIN_WORDS.findall(content)) * 2 > len(together):
        return ""
    for name, likely in LIKELY:
        try:
            letters = [c for c in content.decode(name) if ord(c) >= 0x80]
        except UnicodeDecodeError:
            continue
        if letters and likely("".join(letters)):
            return name
    return ""


def _share(text: str, *alphabets: range) -> float:
    return sum(any(ord(c) in alphabet for alphabet in alphabets) for c in text) / len(text)


def _often(letters: str, alphabet: range) -> Callable[[str], bool]:
    """Encodings of one byte differ in which letters the frequent bytes are."""
    frequent = frozenset(letters)
    return lambda text: (
        _share(text, alphabet) > MOSTLY and sum(c in frequent for c in text) > FREQUENT * len(text)
    )


def _japanese(text: str) -> bool:
    return _share(text, KANA, IDEOGRAPHS, *SIGNS) > MOSTLY


def _with_kana(text: str) -> bool:
    return _share(text, KANA) > 0 and _japanese(text)


def _korean(text: str) -> bool:
    return _share(text, HANGUL) > MOSTLY


def _chinese(text: str) -> bool:
    return _share(text, IDEOGRAPHS, *SIGNS) > MOSTLY


# Chinese text in the encoding of another language has strange letters in it, Japanese has kana.
LIKELY: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("windows-1251", _often("оеаинт", CYRILLIC)),
    ("KOI8-R", _often("оеаинт", CYRILLIC)),
    ("windows-1253", _often("αοιετσν", GREEK)),
    ("Shift_JIS", _japanese),
    ("EUC-JP", _with_kana),
    ("EUC-KR", _korean),
    ("GB18030", _chinese),
)
GUESSED = frozenset(name for name, _ in LIKELY)
