"""Rankings of items, full or partial, with or without ties, and the classes of their rankers."""

import os
import zlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from relpref.data.arrays import (
    Floats,
    Indices,
    Integers,
    Mask,
    Positions,
    Texts,
    chosen_rows,
    counted,
    listed,
    read_only,
    refuse_first,
    shown,
)
from relpref.data.items import ItemTable, read_item_table
from relpref.data.labels import read_labels
from relpref.data.preference import READERS, PreferenceData, assembled
from relpref.data.ranking_tables import (
    check_number,
    generator,
    in_order,
    numbered,
    place_of,
    read_orders,
    read_positions,
    read_preflib,
    read_scores,
)
from relpref.data.relation import Relations
from relpref.data.table_files import suffix_of
from relpref.errors import DataError
from relpref.files import FilePath
from relpref.pytree import register

# From the narrowest to the widest: each kind is a special case of the next.
_KINDS = ("full", "top-k", "exhaustive", "non-exhaustive")
_RANKINGS_SHOWN = 5
_BLOCKS_SHOWN = 10


def _chosen(allowed: Mask, number: int, rng_key: Any) -> Mask:
    """Choose so many allowed places of each row at random, or all where these are fewer."""
    draws = np.where(allowed, generator(rng_key).random(allowed.shape), np.inf)
    ranks = np.argsort(np.argsort(draws, axis=1, kind="stable"), axis=1)
    return allowed & (ranks < number)


@dataclass(frozen=True, eq=False, repr=False)
class Rankings:
    """Ordered partitions of labeled items: validated, immutable.

    Make one with `from_orders`, `from_table`, `from_scores` or `from_preflib`; the constructor
    itself checks nothing. It has a shape and is indexed by arrays, so that scikit-learn splits it;
    it is a JAX pytree, whose arrays are leaves.

    Attributes
    ----------
    items : PreferenceData
        The n items: labels, attributes, relations among them; without comparisons.
    positions : array of int32, shape (m, n)
        Block of each item, 0 for the most preferred, without gaps in each ranking; −1 for an item
        that is not ranked.
    rankers : tuple of hashable, length m
        Who gave each ranking; a label may repeat.
    classes : tuple of hashable
        Labels of the classes of rankers, in order; empty where none are known.
    label : array of int32, shape (m,), or None
        Class of each ranking, a position in ``classes``.
    features : array of float64, shape (m, r), or None
        Computed beforehand, see `with_features`.
    residual : array of float64, shape (m,), or None
        Prior variance that these features leave out; None where they leave out nothing.

    Notes
    -----
    Kinds of ranking, each a special case of the next: *full* orders all items; *top-k* orders some
    and leaves all others tied below them; *exhaustive* has every item in some block;
    *non-exhaustive* leaves some items out.

    Examples
    --------
    >>> from relpref import Rankings
    >>> orders = [["tea", "coffee", "water"], ["coffee", ("tea", "water")]]
    >>> Rankings.from_orders(orders).kinds
    ('full', 'top-k')
    """

    items: PreferenceData
    positions: Positions
    rankers: tuple[Hashable, ...]
    classes: tuple[Hashable, ...] = ()
    label: Positions | None = None
    features: Floats | None = None
    residual: Floats | None = None

    @classmethod
    def from_orders(cls, orders: Any, items: Any = None, rankers: Any = None) -> "Rankings":
        """Read orders, best first.

        Parameters
        ----------
        orders : sequence of sequences of labels
            One for each ranking: ``[["a", "b", ("c", "d")], ["b", "a"]]``. A tuple, list or set
            inside is a tie (a label that is itself a tuple goes into a tie of its own). An item
            that is left out is not ranked. A Series has rankers as its index.
        items : sequence of labels, DataFrame or PreferenceData, optional
            All items; a DataFrame has the labels as its index and numeric attributes as columns. By
            default those that occur, in order of appearance.
        rankers : sequence of labels, length m, optional
            Who gave each ranking; 0, 1, ... by default.

        Raises
        ------
        DataError, UnknownLabelError
            If an item is in a ranking twice, a ranking is empty, or a label is no item.
        """
        return cls(*read_orders(orders, items, rankers))

    @classmethod
    def from_table(
        cls, table: Any, items: Any = None, *, columns: Mapping[str, str] | None = None
    ) -> "Rankings":
        """Read a table of positions, the lower the better; equal positions are a tie.

        Parameters
        ----------
        table : DataFrame
            Long: one row for each ranked item of each ranking, with the columns ``ranker``,
            ``item`` and ``position``, and ``ranking`` where a ranker gave several. Or wide: one row
            for each ranking and one column for each item, whose cells are positions, blank (NaN)
            where the item is not ranked; rankers are the index, or a column ``ranker``. Positions
            are whole numbers from 1 on, which may have gaps.
        items : optional
            See `from_orders`.
        columns : mapping of str to str, optional
            What a long table calls its columns: ``{"ranker": "voter"}``.

        Raises
        ------
        DataError, UnknownLabelError
            As `from_orders`, and if a position is no whole number from 1 on.
        """
        return cls(*read_positions(table, items, columns))

    @classmethod
    def from_scores(cls, scores: Any, items: Any = None, rankers: Any = None) -> "Rankings":
        """Read scores or ratings, the larger the better; equal scores are a tie.

        Parameters
        ----------
        scores : array, DataFrame or sparse matrix, shape (m, n)
            NaN, or masked, where an item is not ranked. A DataFrame has rankers as its index and
            items as its columns. All stored entries of a sparse matrix are scores, zeros too; the
            other items are not ranked.
        items : optional
            The n items in the order of the columns of an array or a sparse matrix, 0, 1, ... by
            default; for a DataFrame see `from_orders`.
        rankers : sequence of labels, length m, optional
            By default the index of a DataFrame, or 0, 1, ...

        Raises
        ------
        DataError, UnknownLabelError
            As `from_orders`, and if a score is not a number or infinite.
        """
        return cls(*read_scores(scores, items, rankers))

    @classmethod
    def from_preflib(
        cls, path: FilePath, incomplete: Literal["top-k", "subset"] | None = None
    ) -> "Rankings":
        """Read a PrefLib file (``.soc``, ``.soi``, ``.toc``, ``.toi``) in the format since 2022.

        An order that was given k times becomes k rankings.

        Parameters
        ----------
        incomplete : {"top-k", "subset"}
            Meaning of an alternative that an order of a ``.soi`` or ``.toi`` file lacks: it is
            below all others (top-k), or it was not asked for (subset). Complete files do not need
            it.

        Raises
        ------
        DataError
            If the file is of another format, damaged, or the meaning of incomplete orders is not
            given.
        """
        read = cls(*read_preflib(path, incomplete))
        return read.completed() if incomplete == "top-k" else read

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rankings m and of items n."""
        return self.positions.shape

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def kinds(self) -> Texts:
        """The narrowest kind of each ranking: full, top-k, exhaustive or non-exhaustive."""
        positions = self.positions
        n = self.shape[1]
        last = positions.max(axis=1, initial=-1)
        # Blocks have no gaps, so the blocks before the last one are single items where they have as
        # many items as blocks.
        single = (positions < last[:, None]).sum(axis=1) == last
        left_out = (positions < 0).any(axis=1)
        codes = np.select([left_out, ~single, last == n - 1], [3, 2, 0], default=1)
        return tuple(_KINDS[code] for code in codes)

    # Kernels need the following values when they are compiled, so these are static.

    @cached_property
    def exhaustive(self) -> bool:
        """Whether every ranking has all items in some block."""
        return bool((self.positions >= 0).all())

    @cached_property
    def items_code(self) -> int:
        """A number for the items' labels in their order, the same in every process."""
        return zlib.crc32(repr(self.items.labels).encode("utf-8", "surrogatepass"))

    @cached_property
    def items_alike(self) -> bool:
        """Whether most pairs of items have equal attributes."""
        n = self.items.num_items
        _, sizes = np.unique(np.asarray(self.items.attributes), axis=0, return_counts=True)
        return n < 2 or bool(2 * np.sum(sizes * (sizes - 1)) > n * (n - 1))

    @cached_property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def kind(self) -> str:
        """The narrowest kind that describes all rankings."""
        return max(self.kinds, key=_KINDS.index, default=_KINDS[0])

    def with_labels(self, labels: Any, classes: Sequence[Hashable] | None = None) -> "Rankings":
        """Return the rankings with the class of each.

        Parameters
        ----------
        labels : sequence of hashable, length m
            In the order of the rankings.
        classes : sequence of hashable, optional
            The classes in order (rankings held out may lack one); by default those that occur,
            sorted.

        Raises
        ------
        DataError
            If labels are missing or none of the classes, or the index of a Series names the rankers
            in another order.
        """
        by = self.rankers
        if isinstance(labels, pd.Series):
            index = tuple(labels.index)
            if index != by and set(index) == set(by):
                raise DataError(
                    "labels: the index of the Series names the rankers in another order than the "
                    "rankings; pass labels.loc[list(rankings.rankers)], or labels.to_numpy() if "
                    "they are in the order of the rankings"
                )
        values = read_labels(
            in_order(labels, "labels"), lambda row: place_of(by, min(row, len(by) - 1))
        )
        if len(values) != len(by):
            raise DataError(
                f"labels: there are {len(values)} for {counted(len(by), 'ranking')}; give one for "
                "each"
            )
        if classes is None:
            try:
                order = sorted(set(values))
            except TypeError:
                raise DataError(
                    f"labels: {listed(dict.fromkeys(values))} are of different types and have no "
                    "order; make all of them text"
                ) from None
        else:
            order = read_labels(in_order(classes, "classes"), "classes, position {}".format)
        for twice in (label for label in order if order.count(label) > 1):
            raise DataError(f"classes: {shown(twice)} is among them twice; name each class once")
        codes = {label: code for code, label in enumerate(order)}
        positions = np.array([codes.get(label, -1) for label in values], dtype=np.int32)
        refuse_first(
            positions < 0,
            lambda row: (
                f"{place_of(by, row)}: the label {shown(values[row])} is none of the classes "
                f"{listed(order)}; correct it"
            ),
        )
        return replace(self, classes=tuple(order), label=read_only(positions))

    def without_labels(self) -> "Rankings":
        """Return the rankings with their labels unobserved; the classes stay known."""
        return replace(self, label=None)

    def with_features(self, values: ArrayLike, residual: ArrayLike | None = None) -> "Rankings":
        """Return the rankings with features computed beforehand, for the kernel `GivenFeatures`.

        Parameters
        ----------
        values : array, shape (m, r)
            Finite numbers.
        residual : array, shape (m,), optional
            Prior variance that the features leave out, not negative; by default they leave out
            nothing.

        Raises
        ------
        DataError
            If a shape is another or a number is not finite.
        """
        features = np.array(values, dtype=np.float64)
        rest = np.zeros(len(self)) if residual is None else np.array(residual, dtype=np.float64)
        if features.ndim != 2 or len(features) != len(self) or rest.shape != (len(self),):
            raise DataError(
                f"features: the shapes are {features.shape} and {rest.shape} for "
                f"{counted(len(self), 'ranking')}; "
                f"give ({len(self)}, r) features and ({len(self)},) residuals"
            )
        refuse_first(
            ~np.isfinite(np.column_stack([features, rest])).all(axis=1) | (rest < 0),
            lambda row: (
                f"features of {place_of(self.rankers, row)}: they are "
                f"{shown(features[row].tolist())} with the residual {rest[row]}; "
                "give finite numbers, and residuals that are not negative"
            ),
        )
        left_out = None if residual is None else read_only(rest)
        return replace(self, features=read_only(features), residual=left_out)

    def with_items(self, table: Any, relations: Relations = None) -> "Rankings":
        """Return the rankings with attributes of the items and relations among them.

        The table has the same items in any order, labels in the index and numeric attributes in the
        columns; or it is labels alone. ``relations`` are as of `PreferenceData.from_tables`.

        Raises
        ------
        DataError
            If the items are not the same, or the tables cannot be used.
        """
        read = read_item_table(table)
        labels = self.items.labels
        index = read.index()
        rows = index.locate(labels, lambda _: "items", "give every ranked item a row in the table")
        if len(index) > len(rows):
            extra = [label for label in index.labels if label not in set(labels)]
            raise DataError(
                f"items: {listed(extra)} belong to no known item; drop these rows, or give all "
                "items when the rankings are read"
            )
        same = ItemTable(list(labels), read.attributes[rows], read.attribute_names, read.where)
        return replace(self, items=assembled(same, relations))

    def aligned(self, items: PreferenceData) -> "Rankings":
        """Return the rankings with these items, in their order; items they lacked are not ranked.

        Raises
        ------
        DataError, UnknownLabelError
            If the rankings have an item that is none of these, or carry features with the items in
            another order.
        """
        if self.items is items:
            return self
        if self.items.labels == items.labels:
            return replace(self, items=items)
        columns = items.index(self.items.labels)
        if self.features is not None:
            raise DataError(
                "the rankings carry features that were computed for items in another order than "
                "those they are to be compared with; read them with the same items=, and compute "
                "their features then"
            )
        positions = np.full((len(self), items.num_items), -1, dtype=np.int32)
        positions[:, columns] = self.positions
        return replace(self, items=items, positions=read_only(positions))

    def asked_of(self, known: "Rankings") -> "Rankings":
        """Return the rankings without labels, for a program that was fitted to ``known`` ones."""
        return replace(self.aligned(known.items), classes=known.classes, label=None)

    @property
    def index(self) -> pd.Index:
        """Who gave each ranking."""
        return pd.Index(self.rankers, dtype=object, name="ranker", tupleize_cols=False)

    @property
    def outcomes(self) -> Indices:
        """Position of the class of each ranking."""
        return np.asarray(self.label, dtype=np.intp)

    def completed(self) -> "Rankings":
        """Return the rankings with the items that are not ranked tied below all others."""
        last = self.positions.max(axis=1, keepdims=True, initial=-1)
        return self._with_positions(np.where(self.positions < 0, last + 1, self.positions))

    def top(self, k: int) -> "Rankings":
        """Return the rankings with the k best blocks; ranked items below them are tied last."""
        check_number(k, "k blocks")
        return self._with_positions(np.minimum(self.positions, k))

    def subset(self, k: int, rng_key: Any) -> "Rankings":
        """Return the rankings of k items of each, chosen at random by a seed or JAX key.

        The items are chosen among those that a ranking ranks; all are kept where these are fewer.
        """
        check_number(k, "k items")
        rows, columns = np.nonzero(_chosen(self.positions >= 0, k, rng_key))
        return self._with_positions(
            numbered(rows, columns, self.positions[rows, columns], self.shape)
        )

    def coarsened(self, blocks: int, rng_key: Any) -> "Rankings":
        """Return the rankings cut into so many blocks of tied items at uniformly random places.

        The places are drawn by a seed or JAX key; a ranking without more blocks is kept as it is.
        Full rankings become exhaustive interleaving rankings of that length (Conserva et al., Table
        2).
        """
        check_number(blocks, "blocks")
        last = self.positions.max(axis=1, keepdims=True, initial=0)
        cuts = _chosen(np.arange(1, self.shape[1]) <= last, blocks - 1, rng_key)
        block = np.cumsum(np.pad(cuts, ((0, 0), (1, 0))), axis=1)
        merged = np.take_along_axis(block, np.maximum(self.positions, 0), axis=1)
        return self._with_positions(np.where(self.positions >= 0, merged, -1))

    def _with_positions(self, positions: Any) -> "Rankings":
        # Features belong to the positions from which they were computed.
        fresh = read_only(np.asarray(positions, dtype=np.int32))
        return replace(self, positions=fresh, features=None, residual=None)

    def orders(self) -> list[list[Any]]:
        """Return each ranking, best first, with a tuple for each tie, as `from_orders` reads it."""
        orders = []
        for places in self.positions:
            order = np.argsort(places, kind="stable")[(places < 0).sum() :]
            blocks = np.split(order, np.flatnonzero(np.diff(places[order])) + 1)
            ties = [tuple(self.items.labels[item] for item in block) for block in blocks]
            orders.append(
                [tie if len(tie) > 1 or isinstance(tie[0], tuple) else tie[0] for tie in ties]
            )
        return orders

    def __getitem__(self, chosen: Any) -> "Rankings":
        """Return some of the rankings: a number, a slice, a mask or an array of numbers."""
        # scikit-learn indexes whatever has a shape as if it were an array: [rows, ...].
        if isinstance(chosen, tuple):
            chosen, *rest = chosen
            if rest != [Ellipsis]:
                raise DataError("rankings[...]: choose rankings, not items; give one index")
        if isinstance(chosen, slice):
            chosen = range(*chosen.indices(len(self)))
        rows = chosen_rows(np.atleast_1d(chosen), len(self))
        picked = {
            name: read_only(np.asarray(value)[rows])
            for name in ("positions", "label", "features", "residual")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, rankers=tuple(self.rankers[row] for row in rows), **picked)

    def answer_groups(self, by: str) -> tuple[Integers, str]:
        """Each ranking is a group of its own."""
        return np.arange(len(self)), "ranking"

    def select_answers(self, chosen: Any) -> "Rankings":
        return self[chosen]

    def __iter__(self) -> Iterator["Rankings"]:
        """Return the rankings one by one."""
        return (self[row] for row in range(len(self)))

    def describe(self) -> str:
        """Return kind, sizes and classes in one line."""
        m, n = self.shape
        kind = self.kind if len(set(self.kinds)) == 1 else f"partly {self.kind}"
        ranked = (self.positions >= 0).sum(axis=1)
        few = ranked.min(initial=n)
        many = ranked.max(initial=0)
        of = "" if few == n else f"{few} of " if few == many else f"{few} to {many} of "
        text = f"{counted(m, f'{kind} ranking')} of {of}{counted(n, 'item')}"
        if not self.classes:
            return text
        if self.label is None:
            return f"{text}, {counted(len(self.classes), 'class', 'classes')}"
        sizes = Counter(self.label.tolist())
        classes = (f"{shown(label)} ({sizes[code]})" for code, label in enumerate(self.classes))
        return f"{text}, classes {', '.join(classes)}"

    def __repr__(self) -> str:
        if not isinstance(self.positions, np.ndarray):
            return f"Rankings({counted(len(self), 'ranking')}, traced)"
        return f"Rankings({self.describe()})"

    def __str__(self) -> str:
        if not isinstance(self.positions, np.ndarray):
            return repr(self)
        lines = [repr(self)]
        for ranker, order in zip(self.rankers, self[:_RANKINGS_SHOWN].orders(), strict=False):
            blocks = [
                " = ".join(map(str, block)) if isinstance(block, tuple) else str(block)
                for block in order
            ]
            more = [f"{len(blocks) - _BLOCKS_SHOWN} more"] if len(blocks) > _BLOCKS_SHOWN else []
            lines.append(f"  {ranker}: {' > '.join([*blocks[:_BLOCKS_SHOWN], *more])}")
        return "\n".join([*lines, "  ..."] if len(self) > _RANKINGS_SHOWN else lines)


register(
    Rankings,
    leaves=("items", "positions", "label", "features", "residual"),
    static=("exhaustive", "items_code", "items_alike", "num_classes"),
    untraced=("rankers", "classes"),
)


PREFLIB = (".soc", ".soi", ".toc", ".toi")
READERS |= dict.fromkeys(PREFLIB, Rankings.from_preflib)


def read_ballots(value: Any, incomplete: Literal["top-k", "subset"] | None = None) -> Any:
    """Return the rankings of a PrefLib file if a value is the path of one; else the value."""
    if not isinstance(value, str | os.PathLike) or suffix_of(value) not in PREFLIB:
        if incomplete is None:
            return value
        raise DataError(
            f"{value} is no PrefLib file, whose ballots may be incomplete; leave 'incomplete' out"
        )
    return Rankings.from_preflib(value, incomplete)
