"""Which file of which registry a published file replaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctx_pipeline.errors import ConfigError, InvalidRequest, NotFound
from ctx_pipeline.orchestration.publish import DefinitionFile, publish
from testing.artifacts import write_config
from testing.published_project import (
    AOV,
    GMV,
    REGISTRY,
    V2,
    Home,
    text,
)


def test_the_registry_must_be_clear(tmp_path: Path):
    home = Home(tmp_path)
    second = {"registry": REGISTRY, "other": {**REGISTRY, "path": "other"}, "docs": {}}
    write_config(tmp_path, second)
    for source, code in ((None, "several_registries"), ("docs", "not_a_registry")):
        with pytest.raises(ConfigError) as refused:
            home.publish(GMV, source=source)
        assert refused.value.stable_code == code
    with pytest.raises(NotFound):
        home.publish(GMV, source="none")
    assert home.publish(GMV, source="other").source == "other"
    assert (tmp_path / "other" / "gmv.yaml").exists()
    write_config(tmp_path, {"docs": {}})
    with pytest.raises(ConfigError, match="no_registry"):
        home.publish(GMV)
    write_config(tmp_path, {"registry": {**REGISTRY, "path": "s3://bucket/metrics"}})
    with pytest.raises(ConfigError, match="registry_not_local"):
        home.publish(GMV)


def test_a_registry_of_one_file_is_replaced_by_whatever_is_published(tmp_path: Path):
    home = Home(tmp_path)
    write_config(tmp_path, {"registry": {**REGISTRY, "path": "semantic/metrics.yaml"}})
    report = home.publish(GMV, name="any.yaml")
    assert [file.path for file in report.files] == ["semantic/metrics.yaml"]
    assert home.live("metrics.yaml") == text(GMV)


def test_a_file_of_the_registry_is_published_as_it_lies_there(home: Home):
    path = home.folder / "semantic" / "sales" / "gmv.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text(GMV), encoding="utf-8")
    report = publish(home.folder, [path], build=False)
    assert [(file.path, file.status) for file in report.files] == [
        ("semantic/sales/gmv.yaml", "unchanged")
    ]
    assert report.added == 1
    # A file elsewhere whose path ends like one of the registry takes that one's place.
    draft = home.draft(V2, name="sales/gmv.yaml")
    assert publish(home.folder, [draft], build=False).files[0].path == "semantic/sales/gmv.yaml"


@pytest.mark.parametrize(
    "name", ["../gmv.yaml", ".hidden/gmv.yaml", "gmv.txt", "/etc/gmv.yaml", "a/../../b.yaml"]
)
def test_a_name_outside_the_registry_is_refused(home: Home, name: str):
    with pytest.raises(InvalidRequest, match="not_in_registry"):
        publish(home.folder, [DefinitionFile(name, content=text(GMV).encode())], build=False)
    assert not (home.folder / "semantic").exists()


def test_nothing_is_published_through_a_link(home: Home):
    folder = home.folder / "semantic"
    folder.mkdir()
    (folder / "real.yaml").write_text(text(GMV), encoding="utf-8")
    (folder / "gmv.yaml").symlink_to(folder / "real.yaml")
    (folder / "out.yaml").symlink_to(home.draft(AOV, name="secret.yaml"))
    for name in ("gmv.yaml", "out.yaml"):
        with pytest.raises(InvalidRequest, match="not_in_registry"):
            publish(home.folder, [DefinitionFile(name, content=text(V2).encode())], build=False)


def test_a_glob_decides_which_new_files_there_may_be(tmp_path: Path):
    home = Home(tmp_path)
    write_config(tmp_path, {"registry": {**REGISTRY, "path": "semantic/**/*.metrics.yaml"}})
    with pytest.raises(InvalidRequest, match="not_in_registry"):
        home.publish(GMV)
    assert home.publish(GMV, name="gmv.metrics.yaml").added == 1
    assert home.publish(AOV, name="gmv.metrics.yaml", yes=True).removed == 1


def test_two_files_of_one_place_are_refused(home: Home):
    files = [DefinitionFile("gmv.yaml", content=b""), home.draft(GMV)]
    with pytest.raises(InvalidRequest, match="same_target"):
        publish(home.folder, files, build=False)
    with pytest.raises(InvalidRequest, match="unreadable_file"):
        publish(home.folder, [home.folder / "none.yaml"], build=False)
    with pytest.raises(InvalidRequest, match="unnamed_file"):
        publish(home.folder, [DefinitionFile(None, content=b"")], build=False)


def test_a_check_writes_nothing_at_all(home: Home):
    report = home.check(GMV, AOV)
    assert (report.published, report.added) == (False, 2)
    assert not (home.folder / ".ctx").exists()
    assert not (home.folder / "semantic").exists()
