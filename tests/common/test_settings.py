"""A setting says what it is."""

from dataclasses import dataclass

from loriini.common.settings import Needs, setting, settings_of, settings_of_kind

FULL = Needs("a full cup", lambda cup: cup.full)


@dataclass(frozen=True)
class Handle:
    width: int = 1
    colour: str = setting("red", "aside", FULL)


@dataclass(frozen=True)
class Cup:
    full: bool = setting(True, "training", may_change=True)
    rest: int = 3
    handle: Handle = setting(kind="design", default_factory=Handle)


def test_sections_give_their_kind_to_settings_without_one() -> None:
    kinds = {name: setting.kind for name, setting in settings_of(Cup).items()}
    assert kinds == {"full": "training", "rest": None, "handle.width": "design", "handle.colour": "aside"}
    assert settings_of_kind(Cup, "aside", "training") == ("full", "handle.colour")
    assert settings_of(Cup)["full"].may_change
    assert Cup() == Cup(True, 3, Handle(1, "red"))


def test_needs_are_asked_of_the_whole() -> None:
    needs = settings_of(Cup)["handle.colour"].needs
    assert needs is not None
    assert needs.met(Cup())
    assert not needs.met(Cup(full=False))
