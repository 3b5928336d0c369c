"""The public data sets that have a loader: where they come from, under which terms, and where they lie."""

import os
from dataclasses import dataclass
from pathlib import Path

from relpref.data.messages import listed
from relpref.errors import DataError

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
