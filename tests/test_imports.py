"""Modules that an import loads, imports that a room may have, and public names."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import networkx
import pytest

import relpref

PACKAGE = Path(relpref.__file__).parent

# A room may import from the rooms below it and from its own; what is open belongs to all.
LEVEL = {
    "data": 0,
    "linalg": 0,
    "kernels": 1,
    "likelihoods": 1,
    "models": 2,
    "infer": 2,
    "posterior": 2,
    "rls": 3,
    "classifiers": 3,
    "explore": 4,
    "diagnostics": 4,
    "report": 4,
    "ask": 5,
    "cli": 6,
    "fitting": 3,
    "runs": 3,
}
OPEN = (
    "__main__",
    "_version",
    "blas",
    "compiled",
    "description",
    "devices",
    "errors",
    "files",
    "limits",
    "options",
    "journal",
    "pytree",
    "skeleton",
    "folders",
    "parallel",
    "data_loaders",
    "registry",
    "result",
)


MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


@cache
def nodes(name: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))))


def called(node: ast.AST) -> str:
    """The last name of what a call calls."""
    function = node.func if isinstance(node, ast.Call) else None
    return str(getattr(function, "attr", None) or getattr(function, "id", ""))


@cache
def imports(name: str) -> set[str]:
    """Full names that a module imports anywhere, by ``import_module("...")``, too."""
    names = set()
    for node in nodes(name):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and called(node) == "import_module":
            names |= {str(part.value) for part in node.args if isinstance(part, ast.Constant)}
    return names


def room(name: str) -> str:
    return name.split(".")[1]


def inside(name: str) -> set[str]:
    return {imported for imported in imports(name) if imported.startswith("relpref.")}


def test_every_room_has_its_place() -> None:
    rooms = {room(name) for name in MODULES if name != "relpref.__init__"}
    assert rooms <= {*LEVEL, *OPEN}


@pytest.mark.parametrize(
    "name", [name for name in MODULES if name != "relpref.__init__" and room(name) in LEVEL]
)
def test_imports_flow_one_way(name: str) -> None:
    here = room(name)
    for imported in inside(name):
        there = room(imported)
        if there in LEVEL:
            assert LEVEL[there] <= LEVEL[here], f"{name} imports {imported}"
            assert {here, there} != {"models", "infer"}, f"{name} imports {imported}"
            assert {here, there} != {"data", "linalg"}, f"{name} imports {imported}"


def graph() -> networkx.DiGraph:
    """Imports between modules; those in functions, strings and ``TYPE_CHECKING`` count, too."""
    modules = {name.removesuffix(".__init__") for name in MODULES}
    edges = networkx.DiGraph()
    edges.add_nodes_from(modules)
    for name in MODULES:
        for target in inside(name):
            module = target if target in modules else target.rpartition(".")[0]
            if module in modules and module != name.removesuffix(".__init__"):
                edges.add_edge(name.removesuffix(".__init__"), module)
    return edges


def test_no_import_circle() -> None:
    components = networkx.strongly_connected_components(graph())
    assert not [sorted(circle) for circle in components if len(circle) > 1]


def test_posteriors_import_no_engine() -> None:
    """Neither posteriors nor what they import, in whatever way."""
    engines = {"engine", "exact.engine", "laplace", "large.fit", "many", "samples", "assemble"}
    edges = graph()
    for name in edges:
        if name.startswith("relpref.posterior.") or name == "relpref.infer.relation_posterior":
            reached = networkx.descendants(edges, name)
            assert not reached & {f"relpref.infer.{engine}" for engine in engines}, name


def test_few_things_are_inspected_from_outside() -> None:
    """Checks for the package's own classes: a new kind of thing would need another branch at each
    of them.
    """
    everything = [node for name in MODULES for node in nodes(name)]
    own = {node.name for node in everything if isinstance(node, ast.ClassDef)}
    checks = [
        ast.unparse(node)
        for node in everything
        if isinstance(node, ast.Call) and called(node) in ("isinstance", "issubclass")
        if own
        & {
            ast.unparse(name).rpartition(".")[2]
            for name in ast.walk(node.args[1])
            if isinstance(name, ast.Name | ast.Attribute)
        }
    ]
    assert len(checks) < 60, checks


def test_few_modules_talk_to_arviz() -> None:
    users = [
        name
        for name in MODULES
        if any(
            imported.split(".")[0] in ("arviz", "arviz_base", "arviz_stats", "arviz_plots")
            for imported in imports(name)
        )
    ]
    assert users == ["relpref.infer.smoothing", "relpref.posterior.arviz"]


def run(script: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = (
        "jax",
        "numpyro",
        "pandas",
        "scipy",
        "sklearn",
        "arviz",
        "matplotlib",
        "networkx",
        "xarray",
        "h5py",
    )
    print_loaded = f"print([name for name in {heavy} if name in sys.modules])"
    assert run(f"import sys, relpref; dir(relpref); relpref.__version__; {print_loaded}") == "[]\n"


def test_rooms_load_what_they_need_without_posix_and_jax_keeps_its_configuration() -> None:
    """The package is imported without the modules and signals that Windows lacks."""
    script = """if True:
        import builtins, importlib, pkgutil, signal, sys
        for name in ("SIGCONT", "SIGHUP", "SIGKILL", "SIGTSTP", "pthread_kill"):
            delattr(signal, name)
        hidden = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
        usual = builtins.__import__

        def without(name, globals=None, *rest):
            if name in hidden and (globals or {}).get("__name__", "").startswith("relpref"):
                raise ImportError(f"{globals['__name__']} imports {name}")
            return usual(name, globals, *rest)

        builtins.__import__ = without
        import relpref
        relpref.infer, relpref.models, relpref.kernels, relpref.likelihoods, relpref.data
        heavy = ("sklearn", "arviz", "arviz_base", "matplotlib", "xarray", "h5py", "h5netcdf")
        print([name for name in heavy if name in sys.modules])
        import jax
        print(jax.config.jax_enable_x64)
        for module in pkgutil.walk_packages(relpref.__path__, "relpref."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        print("all")
    """
    assert run(script) == "[]\nFalse\nall\n"


NAMES = {
    "relpref": [
        "PreferenceData",
        "PreferenceRanker",
        "Rankings",
        "Relation",
        "RelationData",
        "__version__",
        "compare",
        "fit",
        "load",
        "register",
    ],
    "relpref.ask": ["AnswerStore", "Item", "Loop", "Progress", "Question"],
    "relpref.ask.web": ["create_app", "serve"],
    "relpref.classifiers": [
        "CutFeatures",
        "KroneckerGPClassifier",
        "PreferenceRanker",
        "RankingGPClassifier",
    ],
    "relpref.data": [
        "PreferenceData",
        "Rankings",
        "Relation",
        "RelationData",
    ],
    "relpref.diagnostics": [
        "calibrate",
        "certify",
        "check",
        "compare",
        "evidence_without_each",
        "influence",
        "k_fold",
        "leave_one_out",
        "raters",
        "robustness",
    ],
    "relpref.explore": [
        "SCORES",
        "Score",
        "TopK",
        "expected_gain",
        "next_choices",
        "next_pairs",
        "why",
    ],
    "relpref.infer": [
        "ClassPosterior",
        "EP",
        "Exact",
        "InferenceWarning",
        "Laplace",
        "Posterior",
        "RelationPosterior",
        "Result",
        "UtilityPosterior",
        "fit_many",
        "from_samples",
        "noncentered",
    ],
    "relpref.infer.exact": ["EarlyStopping", "Exact", "solve_edges"],
    "relpref.kernels": [
        "Cut",
        "Diffusion",
        "GaussianProcess",
        "HiddenCommonCause",
        "Kendall",
        "Landmarks",
        "Linear",
        "Mallows",
        "Matern32",
        "Matern52",
        "Precomputed",
        "RegularizedLaplacian",
        "RelationVectors",
        "SquaredExponential",
        "SquaredExponentialPlusLinear",
        "cut_features",
        "cut_kernel",
        "item_graph",
        "kendall_features",
        "kendall_kernel",
        "mallows_kernel",
        "submodular_features",
    ],
    "relpref.likelihoods": [
        "Comparison",
        "Logistic",
        "LogisticComparison",
        "Probit",
        "ProbitComparison",
        "TiltedMoments",
    ],
    "relpref.linalg": [
        "BlockDiagonal",
        "Covariance",
        "Dense",
        "Identity",
        "Kronecker",
        "LaplacianSolver",
        "LowRank",
        "NamedSum",
        "SparsePrecision",
    ],
    "relpref.linalg.sharded": ["ShardedEdges", "ShardedLaplacian"],
    "relpref.models": [
        "conditional_ranking",
        "kronecker_classifier",
        "preference_gp",
        "ranking_classifier",
        "xpgp",
    ],
    "relpref.report": ["Section", "write"],
    "relpref.rls": [
        "BothKFold",
        "ConditionalRanker",
        "ConditionalRankerCV",
        "EdgeKFold",
        "RLS",
        "RLSCV",
        "RankRLS",
        "RankRLSCV",
        "SourceKFold",
        "TargetKFold",
        "leave_column_out",
        "leave_edge_out",
        "leave_nodes_out",
        "leave_object_pairs_out",
        "leave_row_out",
        "per_node",
        "ranking_error",
    ],
}


@pytest.mark.parametrize("name", NAMES)
def test_public_names(name: str) -> None:
    module = __import__(name, fromlist=["__all__"])
    assert sorted(module.__all__) == NAMES[name]
    assert all(hasattr(module, public) for public in module.__all__)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(AttributeError, match="'no_such'"):
        relpref.no_such  # noqa: B018
    assert {"PreferenceData", "infer", "models"} <= set(dir(relpref))


def test_the_page_on_architecture_has_the_budgets_of_all_rooms() -> None:
    root = PACKAGE.parent
    tokens = tomllib.loads((root / "budget.toml").read_text(encoding="utf-8"))["tokens"]
    page = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    thousands: dict[str, int] = {}
    for heads, cells in re.findall(r"(\| `.*)\n\|[-|]+\n(\|[ \d|]+\|)\n", page):
        names = re.findall(r"[\w_]+(?=`? \|)", heads)
        thousands |= dict(zip(names, map(int, re.findall(r"\d+", cells)), strict=True))
    assert thousands.keys() == tokens.keys()
    assert all(number <= 1000 * thousands[room] for room, number in tokens.items())
