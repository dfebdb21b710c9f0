"""Defaults that are read from source are those of the classes."""

from __future__ import annotations

import pytest

from compbench.board.method_defaults import default_settings_of, version_of
from compbench.registry.registry import Registry

NAMES = Registry().names("methods")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_from_source_is_what_the_class_says(name: str) -> None:
    registry = Registry()
    loaded = registry.attempt(registry.entry("methods", name))
    if loaded.state != "ok":
        pytest.skip(loaded.reason)
    found, true = default_settings_of(loaded.entry), loaded.value.settings().model_dump()
    assert {key: true[key] for key in found} == found
    assert version_of(loaded.entry) == loaded.value.version


def test_most_of_the_shipped_methods_are_read_whole() -> None:
    registry = Registry()
    loaded = [registry.attempt(registry.entry("methods", name)) for name in NAMES]
    sound = [one for one in loaded if one.state == "ok"]
    whole = [one for one in sound if default_settings_of(one.entry).keys() == one.value.settings.model_fields.keys()]
    assert len(whole) >= 0.9 * len(loaded)
