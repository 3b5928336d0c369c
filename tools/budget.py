"""Hold the sources to budget.toml: their size, their prose and their imports.

    python tools/budget.py            compare; exit status 1 where a figure is above its budget
    python tools/budget.py --lower    write the figures that are below their budget into budget.toml

Figures, for each folder of relpref: Python tokens (a docstring and an f-string are one each,
comments and layout none), bytes of templates and scripts, docstrings that begin in the middle of a
sentence, assignments to names that say little, and lines wider than 100. Also: tokens of the tests,
and modules of relpref that import one another in a circle.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import networkx

ROOT = Path(__file__).parents[1]
BUDGET = ROOT / "budget.toml"
WIDTH = 100
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
# Python 3.12 takes f-strings apart into tokens.
FSTRING_START = getattr(tokenize, "FSTRING_START", None)
FSTRING_END = getattr(tokenize, "FSTRING_END", None)
SCRIPTS = {".css", ".html", ".j2", ".js", ".sql", ".svg"}
OPENINGS = {
    "As",
    "By",
    "From",
    "How",
    "Its",
    "Of",
    "Some",
    "That",
    "Those",
    "What",
    "Where",
    "Which",
    "With",
}
NAMES = {
    "found",
    "its",
    "known",
    "made",
    "one",
    "own",
    "room",
    "settled",
    "there",
    "told",
    "wanted",
    "whole",
}
REGISTRY = "relpref.registry"  # the one module that looks names up in a closed list of modules


def tokens(source: str) -> int:
    """Number of tokens, the same on every Python."""
    number = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == FSTRING_START:
            number += depth == 0
            depth += 1
        elif token.type == FSTRING_END:
            depth -= 1
        elif depth == 0:
            number += token.type not in LAYOUT
    return number


def openings(tree: ast.Module) -> Iterator[str]:
    """First lines of the docstrings that begin in the middle of a sentence."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        text = ast.get_docstring(node) if isinstance(node, documented) else None
        if text and text.split()[0].strip("`*.,:;") in OPENINGS:
            yield text.splitlines()[0]


def vague_names(tree: ast.Module) -> int:
    """Number of assignments to names that say little."""
    return sum(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in NAMES
        for node in ast.walk(tree)
    )


def imported(tree: ast.Module) -> Iterator[str]:
    """Full names that a module imports, by ``import_module("...")``, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (
                argument.value
                for argument in node.args
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            )


def circular(modules: dict[str, ast.Module]) -> int:
    """Number of modules that lie on a circle of imports."""
    graph = networkx.DiGraph()
    for name, tree in modules.items():
        for target in imported(tree) if name != REGISTRY else ():
            module = target if target in modules else target.rpartition(".")[0]
            if module in modules and module != name:
                graph.add_edge(name, module)
    return sum(
        len(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1
    )


def figures(kept: dict[str, str]) -> dict[str, dict[str, int]]:
    """Today's figures, as budget.toml has them.

    Parameters
    ----------
    kept : dict
        First lines of docstrings that are right as they are, each with the reason.
    """
    tables: dict[str, dict[str, int]] = {
        title: {} for title in ("tokens", "scripts", "openings", "names", "wide")
    }

    def add(title: str, path: Path, number: int) -> None:
        parts = path.relative_to(ROOT / "relpref").parts
        folder = parts[0] if len(parts) > 1 else "top"
        tables[title][folder] = tables[title].get(folder, 0) + number

    modules: dict[str, ast.Module] = {}
    for path in sorted((ROOT / "relpref").rglob("*")):
        if path.suffix in SCRIPTS:
            add("scripts", path, path.stat().st_size)
        if path.suffix != ".py":
            continue
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = tree
        add("tokens", path, tokens(source))
        add("openings", path, sum(line not in kept for line in openings(tree)))
        add("names", path, vague_names(tree))
        add("wide", path, sum(len(line) > WIDTH for line in source.splitlines()))
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    return {**tables, "all": {"tests": sum(map(tokens, sources)), "circular": circular(modules)}}


def main() -> None:
    text = BUDGET.read_text(encoding="utf-8")
    budget = tomllib.loads(text)
    today = figures(budget["kept"])
    above = []
    for title, table in today.items():
        for name, number in table.items():
            limit = budget[title].get(name, 0)
            if number > limit:
                above.append(f"{title}, {name}: {number}; the budget is {limit}")
            elif number < limit and "--lower" in sys.argv:
                section = re.compile(rf"(?ms)^(\[{title}\]\n.*?^{name} = )\d+")
                text = section.sub(rf"\g<1>{number}", text, count=1)
    if "--lower" in sys.argv:
        BUDGET.write_text(text, encoding="utf-8")
    total, limit = sum(today["tokens"].values()), sum(budget["tokens"].values())
    print(f"relpref has {total} tokens (budget {limit}), the tests {today['all']['tests']}")
    if above:
        print("Above the budget:", *above, sep="\n  ")
        print(
            "Make it smaller, or raise the budget in a commit that says why and lowers another by "
            "as much."
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
