from pathlib import Path

import numpy as np
import pytest

from relpref.data_loaders import drug_target
from relpref.errors import DataError

LINKS = "\tD1\tD2\tD3\nhsa1\t1\t0\t1\nhsa2\t0\t1\t0\n"
DRUGS = "\tD1\tD2\tD3\nD1\t1\t0.9\t0\nD2\t0.8\t1\t0.9\nD3\t0\t0.9\t1\n"
TARGETS = "\thsa2\thsa1\nhsa2\t1\t0.25\nhsa1\t0.25\t1\n"


def write(
    folder: Path, *, admat_dgc: str = LINKS, simmat_dc: str = DRUGS, simmat_dg: str = TARGETS
) -> Path:
    texts = {"admat_dgc": admat_dgc, "simmat_dc": simmat_dc, "simmat_dg": simmat_dg}
    for part, text in texts.items():
        (folder / f"nr_{part}.txt").write_text(text, encoding="utf-8")
    return folder


def test_three_drugs_and_two_targets(tmp_path: Path) -> None:
    found = drug_target.load("nr", write(tmp_path))
    assert found.interactions.to_numpy().tolist() == [[1, 0], [0, 1], [1, 0]]
    assert list(found.interactions.index) == ["D1", "D2", "D3"]
    # Labels are brought into the order of the interactions.
    assert (
        list(found.target_similarity.columns)
        == ["hsa1", "hsa2"]
        == list(found.interactions.columns)
    )
    np.testing.assert_allclose(found.target_similarity.to_numpy(), [[1, 0.25], [0.25, 1]])
    kernel = found.drug_similarity.to_numpy()
    np.testing.assert_allclose(kernel, kernel.T)
    assert np.linalg.eigvalsh(kernel)[0] > -1e-12
    (note,) = found.notes
    assert note.startswith("nr_simmat_dc.txt: replaced by") and "largest asymmetry 0.1" in note


@pytest.mark.parametrize(
    ("part", "text", "reason"),
    [
        ("admat_dgc", LINKS.replace("1\t0\t1", "1\t2\t1"), "an interaction is 0 or 1"),
        (
            "simmat_dc",
            DRUGS.replace("0.9", "x", 1),
            r"dc\.txt, line 2, column 'D2': 'x' is not a number",
        ),
        (
            "simmat_dg",
            TARGETS.replace("hsa1", "hsa3"),
            r"its labels are not those of nr_admat_dgc\.txt",
        ),
        ("simmat_dg", TARGETS.replace("hsa1", "hsa2"), "the label 'hsa2' is there twice"),
        ("simmat_dg", TARGETS.replace("\t1\n", "\n"), "line 3: there are 2 values instead of 3"),
        ("simmat_dg", "", "the file is empty"),
        (
            "admat_dgc",
            "\tD1\tD2\tD3\n",
            r"admat_dgc\.txt: the file is empty or ends with its header",
        ),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, part: str, text: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        drug_target.load("nr", write(tmp_path, **{part: text}))


def test_missing_files(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "nr_simmat_dg.txt").unlink()
    with pytest.raises(DataError, match=r"nr_simmat_dg\.txt: there is no such file"):
        drug_target.load("nr", tmp_path)
    with pytest.raises(DataError, match=r"there is no such folder.*kuicr\.kyoto-u"):
        drug_target.load("nr", tmp_path / "elsewhere")
    with pytest.raises(DataError, match="family is 'enzyme'; this loader knows 'nr' and 'gpcr'"):
        drug_target.load("enzyme")


@pytest.mark.parametrize(
    ("family", "shape", "links", "notes"), [("nr", (54, 26), 90, 1), ("gpcr", (223, 95), 635, 1)]
)
def test_yamanishi(
    real_data: Path, family: str, shape: tuple[int, int], links: int, notes: int
) -> None:
    found = drug_target.load(family)
    assert found.interactions.shape == shape and found.interactions.to_numpy().sum() == links
    for kernel, size in zip((found.drug_similarity, found.target_similarity), shape, strict=True):
        values = kernel.to_numpy()
        assert values.shape == (size, size) and np.allclose(values, values.T)
        assert np.linalg.eigvalsh(values)[0] > -1e-10 * size
    assert len(found.notes) == notes
