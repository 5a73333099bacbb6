"""Layouts of shared files: what a number means stays, also when the ledger is opened anew."""

from pathlib import Path

from millstream.language.share.shared_plan import Place
from millstream.store.layouts import Layouts
from millstream.store.ledger import Ledger


def test_a_number_is_not_given_again_after_the_ledger_was_opened_anew(tmp_path: Path) -> None:
    place = Place(0, 1, {"c0": "c1"})
    ledger = Ledger(tmp_path / "ledger.db")
    with ledger.transaction():
        before = Layouts(ledger).number({"o:before": place})
    ledger.close()
    again = Ledger(tmp_path / "ledger.db")
    layouts = Layouts(again)
    with again.transaction():
        layouts.forget_unused()  # as an engine does when it opens its home
        after = layouts.number({"o:after": place})
    assert after != before
    assert dict(layouts.places(after)) == {"o:after": place}
    assert dict(layouts.places(before)) == {"o:before": place}  # a step under way may still ask
    again.close()
