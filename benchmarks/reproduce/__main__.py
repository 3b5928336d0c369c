"""Run the experiments of Kersting & Xu 2009.

Every finished query is written at once; the same command goes on where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.measure import machine
from benchmarks.reproduce import figure, results
from benchmarks.reproduce.command import carry_out, common
from benchmarks.reproduce.protocol import Protocol, Source
from benchmarks.reproduce.work import PROTOCOLS, compute, items
from relpref.files import replaced
from relpref.parallel import run_all


def main() -> int:
    """Parse the command line, run, and write the tables and figures."""
    args = parse()
    return carry_out(lambda: run_all_of(args), args.out)


def run_all_of(args: argparse.Namespace) -> None:
    """The protocols that were asked for."""
    source = Source(args.data, args.relation_file)
    for name in args.protocols or PROTOCOLS:
        protocol = PROTOCOLS[name].quick() if args.quick else PROTOCOLS[name]
        # Rows on a relation of one's own are another experiment.
        called = f"{name}-{args.relation_file.stem}" if args.relation_file else name
        kept = results.Results(args.out / f"{called}.csv")
        run(protocol, source, kept, args.scheduler)
        show(protocol, kept, args.out / called)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce", description=__doc__)
    parser.add_argument(
        "protocols", nargs="*", metavar="protocol", help=f"{', '.join(PROTOCOLS)} (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="two queries, two reruns, two sizes")
    common(parser)
    parser.add_argument(
        "--data", type=Path, help="folder of the data set (default: the one below RELPREF_DATA)"
    )
    parser.add_argument(
        "--relation-file", type=Path, help="ohsumed: lines source target weight over the documents"
    )
    args = parser.parse_args()
    if unknown := set(args.protocols) - set(PROTOCOLS):
        parser.error(
            f"unknown protocol {', '.join(sorted(unknown))}; there are {', '.join(PROTOCOLS)}"
        )
    if args.data and len(args.protocols) != 1:
        parser.error("--data belongs to one protocol; name it")
    if args.relation_file and args.protocols != ["ohsumed"]:
        parser.error("--relation-file belongs to ohsumed; name it")
    return args


def run(protocol: Protocol, source: Source, kept: results.Results, scheduler: str | None) -> None:
    """Compute what is missing."""
    left = items(protocol, source, kept.done())
    for _, rows in run_all(compute, left, scheduler, label=protocol.name):
        kept.add(rows)


def show(protocol: Protocol, kept: results.Results, stem: Path) -> None:
    """Print the table; write it and the figure."""
    lines = results.summary(results.of(kept.rows, protocol))
    with replaced(stem.with_name(f"{stem.name}_summary.csv")) as part:
        lines.to_csv(part, index=False)
    figure.draw(lines, protocol, stem)
    fits = (
        f"{protocol.queries} queries, {protocol.reruns} reruns each; {lines['failed'].sum()} "
        "fits did not converge."
    )
    text = f"{results.markdown(lines)}\n\n{fits}"
    print(f"\n## {protocol.title}\n\n{text}\n\n{machine()}\n\nWritten to {stem.parent}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
