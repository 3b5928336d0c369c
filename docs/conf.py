"""The documentation site: ``make docs`` writes it to docs/_build/html."""

import html
import os
import re
from pathlib import Path
from typing import Any

import jupytext
import latex2mathml.converter
import relpref
from docutils.nodes import SkipNode, image, math_block
from PIL import Image, ImageOps

HERE = Path(__file__).parent
ENGINE_INTERNALS = re.compile(
    "at_mode|changed|fit_many|name|options|raise_unless_ok|reweighted|run_at_draws|run_from"
)
TUTORIAL = re.compile(
    r"^\* \[(?P<title>[^]]+)\]\(\.\./tutorials/(?P<name>\w+)\.py\): (?P<text>.+)$",
    re.MULTILINE,
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
if "RELPREF_SITE" in os.environ:  # the pages are to lie beside those of other versions
    html_sidebars = {
        "**": [
            "sidebar/brand.html",
            "sidebar/search.html",
            "sidebar/scroll-start.html",
            "sidebar/navigation.html",
            "versions.html",
            "sidebar/scroll-end.html",
        ]
    }

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
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


def skip(
    app: object, what: str, name: str, value: object, skipped: bool, options: object
) -> bool | None:
    """Leave out what classes inherit from scikit-learn, and what engines share with other rooms."""
    room = str(
        getattr(
            value, "__module__", getattr(getattr(value, "fget", None), "__module__", "")
        )
    )
    described = "typed property" not in str(
        getattr(value, "__doc__", "")
    )  # entries of ``info``
    internal = (
        not described
        or (room.startswith("relpref.infer.") and ENGINE_INTERNALS.fullmatch(name))
        or name == "evaluate"
    )
    return (
        True
        if internal or room.startswith("sklearn") or name.endswith("_request")
        else None
    )


def link_pages(app: object, name: str, source: list[str]) -> None:
    """Make the list of tutorials a gallery, and links to their scripts links to their pages."""
    text = source[0]
    if name == "tutorials":
        order = [found["name"] for found in TUTORIAL.finditer(text)]
        text = re.sub(rf"(?:{TUTORIAL.pattern}\n?)+", gallery, text, flags=re.MULTILINE)
        text += (
            "\n```{toctree}\n:hidden:\n"
            + "".join(f"tutorials/{one}\n" for one in order)
            + "```\n"
        )
    source[0] = re.sub(
        r"\]\(\.\./tutorials/(\w+)\.py\)", r"](tutorials/\1.ipynb)", text
    )


def gallery(listed: re.Match[str]) -> str:
    """HTML of some tutorials: a picture, a title and a sentence for each."""
    cards = [
        f'<a class="card" href="tutorials/{one["name"]}.html"><img src="_static/{one["name"]}.png" '
        'alt="" '
        'width="400" '
        f'height="300"><b>{html.escape(one["title"])}</b><span>{html.escape(one["text"])}</span></a>\n'
        for one in TUTORIAL.finditer(listed[0])
    ]
    return f'<div class="cards">\n{"".join(cards)}</div>\n'


def thumbnails(app: Any, failure: Exception | None) -> None:
    """Make the picture of each tutorial in the gallery.

    It shows the plot of the cell with the tag "thumbnail", or the first plot.
    """
    if failure:
        return
    for name in sorted(
        name for name in app.env.found_docs if name.startswith("tutorials/")
    ):
        cells = [
            *app.env.get_doctree(name).findall(
                lambda node: "cell_metadata" in getattr(node, "attributes", ())
            )
        ]
        cells.sort(
            key=lambda cell: "thumbnail" not in cell["cell_metadata"].get("tags", ())
        )
        plots = [plot["uri"] for cell in cells for plot in cell.findall(image)]
        if not plots:  # built with ``-D nb_execution_mode=off``
            continue
        with Image.open(HERE / plots[0]) as plot:
            # Of a row of pictures the left part.
            width = (
                plot.width if plot.width < 2.6 * plot.height else plot.height * 3 // 2
            )
            shown = ImageOps.contain(plot.crop((0, 0, width, plot.height)), (384, 288))
            card = ImageOps.pad(shown, (400, 300), color="white")
            card.save(Path(app.outdir) / "_static" / f"{Path(name).name}.png")


def formula(translator: Any, node: Any) -> None:
    """A formula as MathML, which browsers show without scripts and without a network."""
    block = isinstance(node, math_block)
    found = latex2mathml.converter.convert(
        node.astext(), display="block" if block else "inline"
    )
    translator.body.append(f'<div class="math">{found}</div>' if block else found)
    raise SkipNode


def setup(app: Any) -> None:
    """Connect the above."""
    app.connect("build-finished", thumbnails)
    app.connect("autodoc-skip-member", skip)
    app.connect("source-read", link_pages)
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))


tutorials()
