"""How long edge files take to become data, and how much memory: python -m benchmarks.loading

Writes the same links between labels that are text (or, in matrices, between positions) in every
format, and reads each file in a process of its own. The peak is that of the process, imports
included; ten million links take a few minutes and a gigabyte of disk.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse
from numpy.typing import NDArray

from benchmarks.measure import machine, note, table

FORMATS = (".csv", ".csv.gz", ".parquet", ".mtx", ".npz")
PIECE = 1_000_000
READ = """
import resource, sys, time
from relpref import PreferenceData
start, busy = time.perf_counter(), time.process_time()
data = PreferenceData.from_files(sys.argv[1], None, {"links": sys.argv[2]})
seconds, busy = time.perf_counter() - start, time.process_time() - busy
unit = 1 if sys.platform == "darwin" else 1024
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
print(seconds, busy, peak, data.relations["links"].num_edges)
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading", description=__doc__)
    parser.add_argument("formats", nargs="*", help=f"of {', '.join(FORMATS)} (default: all)")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--links", type=int, default=10_000_000)
    args = parser.parse_args()
    formats = args.formats or FORMATS
    if unknown := set(formats) - set(FORMATS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    print(machine(), flush=True)
    print(f"\n{run(formats, args.labels, args.links)}")


def run(formats: tuple[str, ...], items: int, links: int) -> str:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "entities.csv"
        labels = np.array([f"user{position}" for position in range(items)], dtype=object)
        names.write_text("name\n" + "\n".join(labels) + "\n")
        for ending in formats:
            note(f"writing {links} links as {ending}")
            file = Path(folder) / f"links{ending}"
            write(file, ending, labels, links)
            size = file.stat().st_size
            note(f"reading {file.name}")
            command = [sys.executable, "-c", READ, str(names), str(file)]
            seconds, busy, peak, edges = subprocess.run(
                command, check=True, capture_output=True, text=True
            ).stdout.split()
            times = [f"{float(time):.1f}" for time in (seconds, busy)]
            rows.append([ending, f"{size / 1e6:.0f}", *times, f"{int(peak) / 1e9:.2f}", edges])
            file.unlink()
    return table(["format", "size, MB", "seconds", "CPU seconds", "peak, GB", "edges"], rows)


def pieces(items: int, links: int) -> Iterator[NDArray[np.int32]]:
    """The ends of links, equal for every format."""
    rng = np.random.default_rng(0)
    for start in range(0, links, PIECE):
        yield rng.integers(items, size=(2, min(PIECE, links - start)), dtype=np.int32)


def write(file: Path, ending: str, labels: NDArray[np.object_], links: int) -> None:
    drawn = pieces(len(labels), links)
    if ending.startswith(".csv"):
        with gzip.open(file, "wt", 1) if ending.endswith(".gz") else file.open("w") as text:
            text.write("source,target\n")
            for source, target in drawn:
                text.writelines(map("{},{}\n".format, labels[source], labels[target]))
    elif ending == ".parquet":
        from pyarrow import Table, parquet

        writer = None
        for source, target in drawn:
            frame = pd.DataFrame({"source": labels[source], "target": labels[target]}, dtype=str)
            rows = Table.from_pandas(frame)
            writer = writer or parquet.ParquetWriter(file, rows.schema)
            writer.write_table(rows)
        if writer is not None:
            writer.close()
    else:
        source, target = np.concatenate(list(drawn), axis=1)
        shape = (len(labels), len(labels))
        # Both triangles, as such matrices usually have them; a link drawn twice weighs 1.
        joined = scipy.sparse.coo_array((np.ones(links), (source, target)), shape=shape).tocsr()
        matrix = ((joined + joined.T) > 0).astype(np.float64)
        if ending == ".npz":
            scipy.sparse.save_npz(file, matrix)
        else:
            scipy.io.mmwrite(file, matrix, symmetry="symmetric")


if __name__ == "__main__":
    main()
