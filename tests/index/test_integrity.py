"""No file of an artifact can be lost or changed by a bit without being found before anything is
read from it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.errors import Corrupt
from ctx_pipeline.index import integrity
from ctx_pipeline.index.artifact import PARTS, Layout, file_digest
from ctx_pipeline.index.history import kept_artifacts
from ctx_pipeline.index.reader import ArtifactReader
from ctx_pipeline.orchestration.doctor import diagnose
from testing.artifacts import ANA, NOW, build_index, make_item, make_project, open_project

ITEMS = [
    make_item("refunds", "Refunds are paid within 14 days."),
    make_item("退款", "退款在十四天内到账。"),
    make_item("orders", "An order ships in two days."),
]
FILES = ("manifest.json", *(f"{name}.arrow" for name in PARTS))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("whole") / "home", ITEMS)


@pytest.fixture
def home(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "home"))


def artifact(home: Path) -> Path:
    (kept,) = kept_artifacts(Layout(home))
    return Layout(home).artifacts / kept.artifact[:32]


def flip(path: Path, place: int) -> None:
    """Change one bit where the file lies."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def places(path: Path) -> Iterator[int]:
    size = path.stat().st_size
    yield from sorted({0, size // 3, size // 2, size - 1})


def refused(folder: Path) -> str:
    with pytest.raises(Corrupt) as found:
        ArtifactReader(folder)
    return found.value.stable_code


def test_these_are_all_files_of_an_artifact(home: Path):
    folder = artifact(home)
    assert {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    } == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_bit_that_has_changed_anywhere_is_found_at_opening(home: Path, name: str):
    folder = artifact(home)
    for place in places(folder / name):
        flip(folder / name, place)
        assert refused(folder) == "corrupt", place
        flip(folder / name, place)
    ArtifactReader(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_or_cut_is_found_at_opening(home: Path, name: str):
    folder = artifact(home)
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    assert refused(folder) == "corrupt"
    (folder / name).unlink()
    assert refused(folder) == "corrupt"


@pytest.mark.parametrize(
    "name", ["lexical/postings.arrow", "lexical/terms.arrow", "vectors.arrow", "manifest.json"]
)
def test_what_is_damaged_serves_nobody_until_a_build_mends_it(home: Path, name: str):
    request = ContextRequest(task=Task(text="How long do refunds take? 退款多久到账"), identity=ANA)
    with open_project(home) as project:
        before = project.assemble(request, at=NOW)
    folder = artifact(home)
    flip(folder / name, (folder / name).stat().st_size // 2)
    with open_project(home) as project:
        with pytest.raises(Corrupt):
            project.assemble(request, at=NOW)
        with pytest.raises(Corrupt):
            project.items(identity=ANA, at=NOW)
    found = {check.name: check for check in diagnose(home).checks}["artifact"]
    assert (found.state, found.exit_code) == ("fail", Corrupt.exit_code)
    build_index(home)
    with open_project(home) as project:
        after = project.assemble(request, at=NOW)
    assert (after.hash, after.render("text"), after.index_version) == (
        before.hash,
        before.render("text"),
        before.index_version,
    )


def test_a_manifest_that_was_changed_and_is_still_json_is_found(home: Path):
    path = artifact(home) / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["generation"]["overlay_sequence"] = 10**6
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert refused(path.parent) == "corrupt"


def test_of_a_large_artifact_only_files_that_were_not_checked_as_they_lie_are_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    read: list[str] = []

    def noting(path: Path) -> str:
        read.append(path.stem)
        return file_digest(path)

    monkeypatch.setattr(integrity, "WHOLE_BYTES", 0)
    monkeypatch.setattr(integrity, "file_digest", noting)
    folder = artifact(home)
    ArtifactReader(folder)
    assert len(read) == len(PARTS)
    ArtifactReader(folder)
    assert len(read) == len(PARTS)
    os.utime(folder / "ranked.arrow")
    ArtifactReader(folder)
    assert read[len(PARTS) :] == ["ranked"]
    times = (folder / "vectors.arrow").stat()
    flip(folder / "vectors.arrow", times.st_size // 2)
    os.utime(folder / "vectors.arrow", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert refused(folder) == "corrupt"


@pytest.mark.parametrize("notes", ["", "[]", '{"vectors": [1]}', "{"])
def test_notes_that_cannot_be_used_cost_a_reading_and_no_more(
    home: Path, monkeypatch: pytest.MonkeyPatch, notes: str
):
    monkeypatch.setattr(integrity, "WHOLE_BYTES", 0)
    path = Layout(home).derived / integrity.NOTES
    path.write_text(notes, encoding="utf-8")
    ArtifactReader(artifact(home))
    assert set(json.loads(path.read_text(encoding="utf-8"))) == set(PARTS)


def test_where_notes_cannot_be_kept_the_artifact_is_served(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(integrity, "WHOLE_BYTES", 0)
    (Layout(home).derived / integrity.NOTES).mkdir()
    ArtifactReader(artifact(home))
