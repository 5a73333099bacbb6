"""Files that no ledger names are set aside for a while before they are removed.

After a crash they are what an attempt has left that never committed. After damage to a ledger they
may be all that is left of rows: so nothing that was found unnamed is removed at once.
"""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = "set-aside"
KEPT_S = 24 * 3600.0


class SetAside:
    """A folder of folders, each named after the second at which its files were set aside."""

    def __init__(self, home: Path) -> None:
        self.folder = home / FOLDER

    def take(self, files: Sequence[Path]) -> None:
        if not files:
            return
        target = self.folder / str(int(time.time()))
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            os.replace(file, target / file.name)

    def expire(self, kept_s: float = KEPT_S) -> None:
        """Removes what was set aside long ago."""
        if not self.folder.is_dir():
            return
        for entry in list(self.folder.iterdir()):
            if entry.name.isdigit() and int(entry.name) < time.time() - kept_s:
                shutil.rmtree(entry, ignore_errors=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
