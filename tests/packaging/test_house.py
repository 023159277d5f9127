"""The rules of the house that no other tool checks: sizes, direction of imports, forbidden calls, names in their places."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([ROOT / "__init__.py", *(ROOT / "trainer").rglob("*.py"), *(ROOT / "nodes").rglob("*.py")])
NAMES = [path.relative_to(ROOT).as_posix() for path in SOURCES]
MAX_LINES_FILE, MAX_LINES_FUNCTION = 500, 80

FORBIDDEN_MODULES = {"subprocess", "pickle", "cPickle", "dill", "marshal", "shelve", "pty", "pip", "ensurepip", "multiprocessing"}
FORBIDDEN_CALLS = {"eval", "exec", "os.system", "os.popen", "os.execv", "os.fork", "importlib.reload"}
COMFYUI = {"comfy", "comfy_api", "comfy_extras", "comfy_execution", "folder_paths", "server", "nodes", "execution", "node_helpers"}
OPTIONAL = {
    "aiohttp",
    "httpx",  # of huggingface_hub
    "torchao",
    "bitsandbytes",
    "pyarrow",
    "scenedetect",
    "gguf",
}  # ComfyUI's own server, and packages that only some uses need
EXPLAINING = {"description", "tooltip", "title"}
BY_PATH = {"trainer/__main__.py", "trainer/demo/pretrain.py"}  # also run as files
HEAVY = {"torch", "torchvision", "diffusers", "transformers", "peft", "accelerate", "cv2", "av", "pyarrow", "scenedetect"}
LIGHT = re.compile(r"__init__\.py|nodes/.*|trainer/(__init__|job|job_versions|\w*settings|errors|events|packages|models/__init__)\.py")
FAMILY = re.compile(r"(?<![a-z])wan(?![a-z])|hunyuan|(?<![a-z])ltx|cogvideo|mochi|hidream", re.IGNORECASE)
FAMILY_PLACES = re.compile(r"trainer/(models/(\w+/.*|__init__\.py)|importers/.*|demo/.*)")

# Who may be imported by whom: the first rule whose pattern matches the importing file holds.
GROUND = r"trainer/(errors|events|draws|files|hub|hub_model|job|job_versions|source_files|\w*settings|packages)\.py|trainer/__init__\.py"
HELD = r"trainer/memory/(frozen|nf4|fp8_products|quantize|pieces|blocks|choices)\.py"  # how a model's weights are held
TYPES = r"trainer/memory/choices\.py"
DIRECTION = [
    (GROUND, GROUND),
    (HELD, rf"{GROUND}|{HELD}"),
    (
        r"trainer/models/(framepack|hunyuan_video_15)/.*",
        rf"{GROUND}|trainer/models/((?!__)\w+\.py|{{0}}/.*|hunyuan_video/.*)|{TYPES}",
    ),  # related
    (r"trainer/models/(\w+)/.*", rf"{GROUND}|trainer/models/((?!__)\w+\.py|{{0}}/.*)|{TYPES}"),
    (r"trainer/models/.*", rf"{GROUND}|trainer/models/.*|{HELD}"),
    (r"trainer/importers/.*", rf"{GROUND}|trainer/(importers/.*|combinations\.py|optimizer_options\.py)"),
    (r"trainer/(rewards)/.*", rf"{GROUND}|trainer/{{0}}/.*"),
    (r"trainer/(demo/.*|__main__\.py)", r"trainer/.*"),
    (r"trainer/.*", r"trainer/(?!demo/|__main__).*"),
    (r"__init__\.py", r"nodes/.*"),
    (r"nodes/.*", r"(nodes|trainer)/(?!__main__).*"),
]


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


def functions(name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree(name)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What runs at import: everything outside functions and outside `if TYPE_CHECKING`."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from statements(node.orelse)
            continue
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for part in ("body", "orelse", "finalbody"):
                yield from statements(getattr(node, part, []))


def outside(nodes: Iterator[ast.AST]) -> set[str]:
    """Top-level names of the absolute imports among some nodes."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def targets(name: str, nodes: Iterator[ast.AST]) -> set[str]:
    """Our own files that the relative imports among some nodes of a file name."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = (ROOT / name).parents[node.level - 1].joinpath(*filter(None, (node.module or "").split(".")))
            for alias in node.names:
                paths = [base / f"{alias.name}.py", base / alias.name / "__init__.py", base.with_suffix(".py"), base / "__init__.py"]
                found.add(next((path.relative_to(ROOT).as_posix() for path in paths if path.is_file()), name))
    return found - {name}


def inside(name: str) -> set[str]:
    """Our own files that a file imports, anywhere in it."""
    return targets(name, ast.walk(tree(name)))


def test_no_file_and_no_function_is_long() -> None:
    long = []
    for name in NAMES:
        lines = (ROOT / name).read_text(encoding="utf-8").count("\n")
        long += [f"{name}: {lines} lines"] if lines > MAX_LINES_FILE else []
        for node in functions(name):
            length = (node.end_lineno or 0) - node.lineno + 1
            long += [f"{name}:{node.lineno} {node.name}: {length} lines"] if length > MAX_LINES_FUNCTION else []
    assert not long


def test_every_function_says_what_it_returns() -> None:
    assert not [f"{name}:{node.lineno} {node.name}" for name in NAMES for node in functions(name) if node.returns is None]


def test_nothing_is_run_or_unpickled() -> None:
    """The registry bans packs for these, and each would let a workflow file run code."""
    found = [f"{name} imports {module}" for name in NAMES for module in outside(ast.walk(tree(name))) & FORBIDDEN_MODULES]
    for name in NAMES:
        for node in ast.walk(tree(name)):
            if not isinstance(node, ast.Call):
                continue
            call = ast.unparse(node.func)
            unsafe = call == "torch.load" and "weights_only=True" not in ast.unparse(node)
            if call in FORBIDDEN_CALLS or unsafe:
                found.append(f"{name}:{node.lineno} {call}")
    assert not found


def test_the_library_knows_no_comfyui() -> None:
    library = [name for name in NAMES if name.startswith("trainer/")]
    assert library
    assert not [(name, found) for name in library if (found := outside(ast.walk(tree(name))) & COMFYUI)]


def test_own_modules_are_imported_relatively() -> None:
    """The pack's name is a path inside ComfyUI, so an absolute import of it would find another package or none."""
    relative = [name for name in NAMES if name not in BY_PATH]
    assert not [name for name in relative if outside(ast.walk(tree(name))) & {"trainer", "nodes"}]


def test_nothing_heavy_is_imported_at_start() -> None:
    light = [name for name in NAMES if LIGHT.fullmatch(name)]
    assert light
    assert not [(name, found) for name in light if (found := outside(statements(tree(name).body)) & HEAVY)]


def test_imports_go_one_way() -> None:
    wrong = []
    for name in NAMES:
        rule = next((rule for rule in DIRECTION if re.fullmatch(rule[0], name)), None)
        if rule is None:
            wrong.append(f"no rule says what {name} may import")
            continue
        groups = re.fullmatch(rule[0], name)
        allowed = rule[1].format(*(groups.groups() if groups else ()))
        wrong += [f"{name} must not know {target}" for target in inside(name) if not re.fullmatch(allowed, target)]
    assert not wrong


def test_no_import_cycles() -> None:
    """Among what is imported at the top of a file; an import inside a function may look back."""
    graph = {name: targets(name, statements(tree(name).body)) for name in NAMES}
    while leaves := {name for name, known in graph.items() if not known}:
        graph = {name: known - leaves for name, known in graph.items() if name not in leaves}
    assert not graph, "these files import each other in a circle, or import one that does"


def test_families_are_named_only_in_their_places() -> None:
    """Looks at names and strings; comments, docstrings and explaining texts may give examples."""
    found = []
    for name in NAMES:
        if FAMILY_PLACES.fullmatch(name):
            continue
        module = tree(name)
        texts = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
        texts |= {
            id(part)
            for node in ast.walk(module)
            if isinstance(node, ast.keyword) and node.arg in EXPLAINING
            for part in ast.walk(node.value)
        }
        for node in ast.walk(module):
            words = [getattr(node, part, None) for part in ("id", "attr", "name", "arg", "module")]
            if isinstance(node, ast.Constant) and id(node) not in texts:
                words.append(node.value)
            found += [f"{name}:{getattr(node, 'lineno', 0)} {word!r}" for word in words if isinstance(word, str) and FAMILY.search(word)]
    assert not found


def test_what_is_imported_is_declared() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="ascii").splitlines()
    declared = {re.split("[<>=]", line.split("#")[0])[0].strip() for line in lines}
    modules = {"opencv-python": "cv2", "pillow": "PIL"}
    known = (
        {modules.get(name, name.replace("-", "_")) for name in declared}
        | {"torch", "networkx", "tokenizers"}  # the last two come with torch and transformers
        | COMFYUI
        | OPTIONAL
        | set(sys.stdlib_module_names)
    )
    assert not [(name, found) for name in NAMES if (found := outside(ast.walk(tree(name))) - known - {"trainer", "nodes"})]


def test_the_contracts_load_without_torch() -> None:
    """`import trainer` and the job are what the nodes pull in while ComfyUI starts."""
    code = f"import sys, trainer, trainer.job, trainer.events, trainer.errors, trainer.models; print(*({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True, timeout=120)
    assert done.stdout.strip() == ""
