"""The public data sets that have a loader: where they come from, under which terms, and where they lie."""

import hashlib
import http.client
import os
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relpref.data.arrays import listed
from relpref.errors import DataError, StorageError
from relpref.files import flush

SETTING = "RELPREF_DATA"


@dataclass(frozen=True)
class RemoteFile:
    """A file that may be fetched.

    Attributes
    ----------
    name : str
        In the folder of its data set.
    address : str
        Where the authors keep it.
    sha256 : str
        Of the content, in hexadecimal digits.
    size : int
        Bytes.
    """

    name: str
    address: str
    sha256: str
    size: int


@dataclass(frozen=True)
class DataSet:
    """What a user has to know before using a data set.

    Attributes
    ----------
    name, title : str
        Short and long.
    loader : str
        The call that reads it.
    folder : str
        Below the folder that ``RELPREF_DATA`` names; empty for a set that comes with the package.
    address : str
        Where the authors offer it.
    terms : str
        What they ask of whoever uses it.
    cite : str
        What to cite.
    files : tuple of RemoteFile
        What ``relpref data get`` fetches; empty where the terms want to be accepted in person.
    """

    name: str
    title: str
    loader: str
    folder: str
    address: str
    terms: str
    cite: str
    files: tuple[RemoteFile, ...] = ()

    @property
    def access(self) -> str:
        """``bundled``, ``download`` or ``by hand``."""
        return "download" if self.files else "by hand" if self.folder else "bundled"


_LETOR = "https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval/"
_LETOR_TERMS = (
    "Research use under Microsoft's agreement, to be read and accepted at the address; no redistribution."
)
# A commit, not a branch: what is fetched cannot change.
_PLANETOID = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3"
_FOOTBALL = (
    "https://raw.githubusercontent.com/martj42/international_results/65d212aac5deec5157071dcf6e9b05fce0223c84"
)
_CORA = {
    "x": (22119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
    "y": (4054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
    "tx": (148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
    "ty": (28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
    "allx": (257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
    "ally": (47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
    "graph": (59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
    "test.index": (5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
}

DATA_SETS = {
    one.name: one
    for one in (
        DataSet(
            name="20newsgroups",
            title="20 Newsgroups: 18 846 messages in 20 groups, by date",
            loader="newsgroups.load()",
            folder="20newsgroups",
            address="http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",
            terms="None stated. The archive stays as it is, it is read without unpacking.",
            cite="Lang 1995",
        ),
        DataSet(
            name="cora",
            title="Cora: 2708 papers in 7 classes, 1433 words, 5278 citations",
            loader='planetoid.load("cora")',
            folder="planetoid",
            address="https://github.com/kimiyoung/planetoid",
            terms="MIT licence, which is fetched with the files.",
            cite="Yang, Cohen & Salakhutdinov 2016; Sen et al. 2008",
            files=(
                *(
                    RemoteFile(f"ind.cora.{part}", f"{_PLANETOID}/data/ind.cora.{part}", sha256, size)
                    for part, (size, sha256) in _CORA.items()
                ),
                RemoteFile(
                    "LICENSE",
                    f"{_PLANETOID}/LICENSE",
                    "8eeeea48c8b4bc197ad1d7ab01143ac43d52053e560b175bca7ca722c4047234",
                    1076,
                ),
            ),
        ),
        DataSet(
            name="digits",
            title="1797 handwritten digits and which of them are the same (in scikit-learn)",
            loader="load_same_digit()",
            folder="",
            address="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
            terms="CC BY 4.0.",
            cite="Alpaydin & Kaynak 1998",
        ),
        DataSet(
            name="dishes",
            title="Dishes: full rankings of eight dishes by two types of eaters, drawn at random",
            loader="rank_dishes(number, noise)",
            folder="",
            address="https://github.com/MichelangeloConserva/CutFunctionKernel",
            terms="Drawn at random by this package.",
            cite="Conserva, Deisenroth & Kumar 2022",
        ),
        DataSet(
            name="drug-target",
            title="Drugs and targets: 54 x 26 (nuclear receptors), 223 x 95 (G protein-coupled receptors)",
            loader='drug_target.load("nr")',
            folder="yamanishi",
            address="http://web.kuicr.kyoto-u.ac.jp/supp/yoshi/drugtarget/",
            terms="None stated; cite the paper.",
            cite="Yamanishi, Araki, Gutteridge, Honda & Kanehisa 2008",
        ),
        DataSet(
            name="football",
            title="International football: results of 49 520 men's matches of 337 teams, 1872 to 2026",
            loader="football.load(since=..., until=...)",
            folder="international_results",
            address="https://github.com/martj42/international_results",
            terms="CC0, which is fetched with the file.",
            cite="Jürisoo 2026",
            files=(
                RemoteFile(
                    "results.csv",
                    f"{_FOOTBALL}/results.csv",
                    "100afa17b2258ffcc0e9ef9612e374c5349e2b9390ec450b72147d4643c42070",
                    3727835,
                ),
                RemoteFile(
                    "LICENSE",
                    f"{_FOOTBALL}/LICENSE",
                    "a2010f343487d3f7618affe54f789f5487602331c0a8d03f49e9a7c547cf0499",
                    7048,
                ),
            ),
        ),
        DataSet(
            name="letor2-ohsumed",
            title="LETOR 2.0 OHSUMED: 106 medical queries, 16 140 judged documents, 25 features",
            loader="letor.load_queries()",
            folder="letor2_ohsumed",
            address=_LETOR,
            terms=_LETOR_TERMS,
            cite="Liu et al. 2007; Hersh et al. 1994",
        ),
        DataSet(
            name="letor3",
            title="LETOR 3.0: OHSUMED and six query sets on the .gov crawl",
            loader="letor.load_queries(folder)",
            folder="letor3",
            address=_LETOR + "letor-3-0/",
            terms=_LETOR_TERMS,
            cite="Qin, Liu, Xu & Li 2010",
        ),
        DataSet(
            name="letor4",
            title="LETOR 4.0: MQ2007 and MQ2008, 46 features",
            loader="letor.load_queries(folder)",
            folder="letor4",
            address=_LETOR + "letor-4-0/",
            terms=_LETOR_TERMS,
            cite="Qin & Liu 2013",
        ),
        DataSet(
            name="modechoice",
            title="How 210 people travelled: air, train, bus or car",
            loader="load_modechoice()",
            folder="",
            address="https://www.statsmodels.org/stable/datasets/generated/modechoice.html",
            terms="Public domain.",
            cite="Greene & Hensher 1997",
        ),
        DataSet(
            name="power-law",
            title="Power law: a graph with hubs and communities, of any size, and answers, drawn at random",
            loader="power_law(num_entities, num_links, answers)",
            folder="",
            address="https://doi.org/10.1073/pnas.252631999",
            terms="Drawn at random by this package.",
            cite="Chung & Lu 2002",
        ),
        DataSet(
            name="preflib",
            title="PrefLib: orders of elections, courses, films, ..., each set in a folder of its own",
            loader='preflib.load("00009-00000001.soc")',
            folder="preflib",
            address="https://github.com/PrefLib/PrefLib-Data",
            terms="GPL 3 for the collection; each set's info.txt says what else to cite.",
            cite="Mattei & Walsh 2013",
        ),
        DataSet(
            name="rock-paper-scissors",
            title="Rock, paper, scissors: games drawn among one-sided players",
            loader="play_rock_paper_scissors(weight)",
            folder="",
            address="https://doi.org/10.1007/978-3-642-15883-4_32",
            terms="Drawn at random by this package.",
            cite="Pahikkala, Waegeman, Airola, Salakoski & De Baets 2010",
        ),
        DataSet(
            name="sushi",
            title="Sushi: 5000 full rankings of 10 kinds, 5000 rankings and scores of 10 out of 100 kinds",
            loader='sushi.load("a")',
            folder="sushi3-2016",
            address="https://www.kamishima.net/sushi/",
            terms="Research use; no redistribution. The release of 2016 or later: before, scores were upside down.",
            cite="Kamishima 2003",
        ),
    )
}


def data_set(name: str) -> DataSet:
    """Return a data set by name.

    Raises
    ------
    DataError
        If there is none of that name.
    """
    if name not in DATA_SETS:
        raise DataError(f"there is no data set {name!r}; choose one of {listed(DATA_SETS)}")
    return DATA_SETS[name]


def data_folder() -> Path | None:
    """The folder of all data sets, from the environment variable ``RELPREF_DATA``; None if it is not set."""
    setting = os.environ.get(SETTING, "").strip()
    return Path(setting).absolute() if setting else None


def find(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that holds the files of a data set.

    Parameters
    ----------
    name : str
        A name in ``DATA_SETS``.
    folder : path, optional
        By default the set's own folder below ``RELPREF_DATA``.

    Returns
    -------
    Path
        A folder that exists.

    Raises
    ------
    DataError
        If there is no such folder; the message says where the data can be had and under which terms.
    """
    wanted = data_set(name)
    below = data_folder()
    if folder is None and below is None:
        raise DataError(f"{wanted.name}: give its folder, or set {SETTING}. {how_to_get(wanted)}")
    place = Path(folder) if folder is not None else (below or Path()) / wanted.folder
    if not place.is_dir():
        raise DataError(f"{place}: there is no such folder. {how_to_get(wanted)}")
    return place


def how_to_get(wanted: DataSet) -> str:
    """Where a data set can be had and under which terms, in two sentences."""
    if wanted.files:
        return f"`relpref data get {wanted.name}` fetches it from {wanted.address}. Terms: {wanted.terms}"
    return (
        f"Get it from {wanted.address} and put it into {wanted.folder}/ in the folder that {SETTING} names. "
        f"Terms: {wanted.terms}"
    )


_BLOCK = 1 << 16
_PATIENCE = 30  # seconds without a byte


def download(file: RemoteFile, folder: Path, *, progress_bar: bool = True) -> bool:
    """Fetch a file into a folder, unless it is there.

    What has arrived is kept in ``<name>.part`` when the connection breaks, and the next call goes on from there.

    Parameters
    ----------
    file : RemoteFile
    folder : Path
        Made if need be.
    progress_bar : bool
        Show the bytes where a person watches (stderr is a terminal).

    Returns
    -------
    bool
        Whether anything was fetched; False if the file was there.

    Raises
    ------
    StorageError
        If the address cannot be reached or breaks off, the content is not the published one, or the file cannot be written.
    """
    target = folder / file.name
    part = folder / f"{file.name}.part"
    try:
        if target.exists():
            if _sha256(target) == file.sha256:
                return False
            raise StorageError(f"{target}: this is not the published file; move it away and try again")
        folder.mkdir(parents=True, exist_ok=True)
        if not part.exists() or part.stat().st_size < file.size:
            _fetch(file, part, progress_bar)
        _check(file, part)
        flush(part)
        os.replace(part, target)
        flush(folder)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"{error.filename or target}: cannot be written ({error.strerror or error}); "
            "choose a folder that is yours, on a disk with room"
        ) from error
    return True


def _fetch(file: RemoteFile, part: Path, progress_bar: bool) -> None:
    """Append what is missing; start again where the server does not know ranges."""
    from tqdm import tqdm

    start = part.stat().st_size if part.exists() else 0
    with _opened(file, start) as response, part.open("ab") as stream:
        if start and response.status != http.client.PARTIAL_CONTENT:
            start = 0
            stream.truncate(0)
        with tqdm(
            total=file.size,
            initial=start,
            desc=file.name,
            unit="B",
            unit_scale=True,
            leave=False,
            file=sys.stderr,
            disable=not (progress_bar and sys.stderr.isatty()),
        ) as bar:
            arrived = start
            # One byte too many is enough to know that it is another file.
            while arrived <= file.size and (block := _read(file, response, arrived)):
                stream.write(block)
                arrived += len(block)
                bar.update(len(block))
    if arrived < file.size:
        raise _broke_off(file, arrived, "the connection was closed")


def _opened(file: RemoteFile, start: int) -> Any:
    request = urllib.request.Request(file.address, headers={"User-Agent": "relpref"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        return urllib.request.urlopen(request, timeout=_PATIENCE)
    except urllib.error.HTTPError as error:
        with error:
            raise StorageError(
                f"{file.address}: the server answered {error.code} {error.reason}; try again later"
            ) from None
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", error)
        raise StorageError(
            f"{file.address}: cannot be reached ({reason}); check the connection and try again"
        ) from error


def _read(file: RemoteFile, response: Any, arrived: int) -> bytes:
    try:
        return bytes(response.read(_BLOCK))
    except (OSError, http.client.HTTPException) as error:
        raise _broke_off(file, arrived, str(error) or type(error).__name__) from error


def _broke_off(file: RemoteFile, arrived: int, reason: str) -> StorageError:
    return StorageError(
        f"{file.address}: broke off after {arrived} of {file.size} bytes ({reason}); try again, it goes on from there"
    )


def _check(file: RemoteFile, part: Path) -> None:
    found = _sha256(part)
    if found != file.sha256:
        size = part.stat().st_size
        part.unlink()
        raise StorageError(
            f"{file.address}: what arrived ({size} bytes, sha256 {found[:12]}...) is not the published file "
            f"({file.size} bytes, sha256 {file.sha256[:12]}...) and was deleted; try again, or look at the address yourself"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
