"""The documentation site: ``make docs`` writes it to docs/_build/html."""

import importlib
import os
import re
from pathlib import Path
from typing import Any

import jupytext
import latex2mathml.converter
from docutils.nodes import SkipNode, math_block

import relpref

HERE = Path(__file__).parent
ROOMS = (
    "data",
    "linalg",
    "linalg.sharded",
    "kernels",
    "likelihoods",
    "models",
    "infer",
    "rls",
    "classifiers",
    "explore",
    "diagnostics",
    "report",
    "ask",
    "ask.web",
    "data_loaders",
    "errors",
    "parallel",
    "runs",
)

project, author, release = "relpref", "The relpref developers", relpref.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]
html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"relpref {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
copybutton_exclude = ".linenos, .gp, .go"

# A tutorial is executed when its text has changed, and a page whose code fails fails the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "executed")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature and the table of parameters say it
autosummary_generate = True
templates_path = ["_templates"]
default_role = "py:obj"
numpydoc_show_class_members = False  # the template of a class lists them
numpydoc_xref_param_type = False

# Notebooks without widgets show progress as text, and are not told so.
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
# The processes that execute tutorials import the package from where this one did.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(relpref.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
)


def write(file: Path, text: str) -> None:
    """Write a page unless it is there already: Sphinx reads again what is newer."""
    file.parent.mkdir(exist_ok=True)
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def tutorials() -> None:
    """Every tutorial as a notebook without outputs, which the build executes."""
    made = set()
    for script in sorted((HERE.parent / "tutorials").glob("*.py")):
        notebook = jupytext.read(script)
        notebook.metadata["kernelspec"] = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
        for number, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{number}"
        file = HERE / "tutorials" / f"{script.stem}.ipynb"
        write(file, jupytext.writes(notebook, fmt="ipynb"))
        made.add(file)
    for old in set((HERE / "tutorials").glob("*.ipynb")) - made:
        old.unlink()


def reference() -> None:
    """A page for each room of the package: its names, each with a page of its own."""
    shown: list[object] = []
    for room in ROOMS:
        name = f"relpref.{room}"
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None) or [
            key
            for key, value in vars(module).items()
            if not key.startswith("_") and getattr(value, "__module__", None) == name
        ]
        lines = [name, "=" * len(name), "", f".. automodule:: {name}", "   :no-members:", ""]
        lines += [f".. currentmodule:: {name}", "", ".. autosummary::", "   :toctree: names", ""]
        for key in sorted(public):
            value = getattr(module, key)
            # What is no class and no function is described where it is defined, and nothing is described twice.
            if callable(value) and not any(value is one for one in shown):
                lines.append(f"   {key}")
                shown.append(value)
        write(HERE / "api" / f"{room}.rst", "\n".join(lines) + "\n")


def skip(app: object, what: str, name: str, value: object, skipped: bool, options: object) -> bool | None:
    """Leave out what classes inherit from scikit-learn."""
    return (
        True
        if str(getattr(value, "__module__", "")).startswith("sklearn") or name.endswith("_request")
        else None
    )


def link_pages(app: object, name: str, source: list[str]) -> None:
    """Where a page names the script of a tutorial, lead to the executed page."""
    source[0] = re.sub(r"\]\(\.\./tutorials/(\w+)\.py\)", r"](tutorials/\1.ipynb)", source[0])


def formula(translator: Any, node: Any) -> None:
    """A formula as MathML, which browsers show without scripts and without a network."""
    block = isinstance(node, math_block)
    found = latex2mathml.converter.convert(node.astext(), display="block" if block else "inline")
    translator.body.append(f'<div class="math">{found}</div>' if block else found)
    raise SkipNode


def setup(app: Any) -> None:
    """Connect the above."""
    app.connect("autodoc-skip-member", skip)
    app.connect("source-read", link_pages)
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))


tutorials()
reference()
