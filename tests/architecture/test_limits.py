"""No module exceeds its limits, has a vague name or names one machine."""

import re
from pathlib import Path

import pytest

from tests.architecture.import_contracts import read_contracts
from tests.architecture.limits import (
    MAX_BODY_LINES,
    MAX_ENTRIES,
    MAX_FILE_LINES,
    crowded_folders,
    folders,
    listed_folders,
    machine_traces,
    module_faults,
    repeated_class_names,
    unmirrored,
    vague_names,
    without_readme,
)
from tests.support.case import Case, ids
from tests.support.repository import ROOT, project_files

PATHS = {str(path.relative_to(ROOT)): path for path in project_files()}
MODULES = {name: path for name, path in PATHS.items() if path.suffix == ".py"}
FOLDERS = folders(PATHS.keys(), read_contracts(ROOT / "pyproject.toml").roots)


def text_of(path: Path) -> str:
    """Read a file as text; what is not text is empty."""
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""


def body(lines: int) -> str:
    """Write a function of that many lines, with a docstring that does not count."""
    return '"""M."""\ndef f(\n):\n    """D\n    d."""\n' + "    f()\n" * lines


# a module -> its faults
MODULE_CASES = [
    Case("a short module is fine", '"""M."""\nX = 1\n', []),
    Case("a file at the limit is fine", '"""M."""\n' + "\n" * (MAX_FILE_LINES - 1), []),
    Case(
        "a file above the limit",
        '"""M."""\n' + "\n" * MAX_FILE_LINES,
        [f"{MAX_FILE_LINES + 1} lines"],
    ),
    Case("an empty module says nothing", "", ["no docstring"]),
    Case("a comment is no docstring", "# M.\nX = 1\n", ["no docstring"]),
    Case("a body at the limit is fine", body(MAX_BODY_LINES), []),
    Case(
        "a body above the limit",
        body(MAX_BODY_LINES + 1),
        [f"f: a body of {MAX_BODY_LINES + 1} lines"],
    ),
    Case("a body of one docstring is empty", '"""M."""\ndef f():\n    """D."""\n', []),
    Case(
        "a coroutine in a class counts as well",
        '"""M."""\nclass C:\n    async def f(self):\n' + "        f()\n" * (MAX_BODY_LINES + 1),
        [f"f: a body of {MAX_BODY_LINES + 1} lines"],
    ),
]

# a path -> its vague parts
NAME_CASES = [
    Case("a noun is fine", "scheduler/core/nodes/statement.py", []),
    Case("a plural that says nothing is found", "webhook/utils.py", ["utils"]),
    Case("a drawer by its singular", "webhook/helper.py", ["helper"]),
    Case("a folder is no better", "trainer_kai/common/names.py", ["common"]),
    Case("a drawer in a compound", "scheduler/core/node_info.py", ["node_info"]),
    Case("a word that only contains one is fine", "trainer_kai/api/information.py", []),
    Case("a front door is fine", "scheduler/__init__.py", []),
]

# a text -> what of it belongs to one machine; split so that this file holds no trace itself
SLASH = "/"
TRACE_CASES = [
    Case("an image is no registry address", "image: registry.k8s.io/etcd:3.6.4", []),
    Case("a link is no registry address", "https://github.com/kubeflow/trainer/", []),
    Case("a simple page is no index", "https://example.org/simple-answers", []),
    Case(
        "the address of an index is found",
        f"https://packages.example.org{SLASH}simple/idna/",
        [f"https://packages.example.org{SLASH}simple"],
    ),
    Case(
        "the address of a mirror is found",
        f"GET https:{SLASH}/mirror.example.org/x.whl now",
        [f"https:{SLASH}/mirror.example.org/x.whl"],
    ),
    Case("an index option", f"-{'-'}extra-index-url x", [f"-{'-'}extra-index-url"]),
    Case("a Go proxy", f"GOPROXY{'='}https://a.b", [f"GOPROXY{'='}https://a.b"]),
    Case("a proxy that is switched off is no address", f"GOPROXY{'='}off", []),
    Case("a proxy that a test makes up is no address", f"to http:{SLASH}/proxy:3128", []),
    Case("nor is one on loopback", f"to http:{SLASH}/127.0.0.1:{{proxy.port}}", []),
    Case("a user's home is found", f"cd {SLASH}home/ann/src", [f"{SLASH}home/ann/"]),
    Case("root's home is found", f"'{SLASH}root/go'", [f"{SLASH}root/"]),
    Case("root's ssh keys in a container are no trace", f"{SLASH}root/.ssh", []),
    Case("a user's home in a container is no trace", f"{SLASH}home/mpiuser/.ssh", []),
    Case("a work folder", f"see {SLASH}work/x", [f"{SLASH}work/"]),
    Case("a relative path is fine", "framework/work/x", []),
    Case("this checkout, wherever it is", "built in /opt/me/tree", ["/opt/me"]),
]

# a document -> the rooms its table lists
TABLE_CASES = [
    Case("a row lists its room", "| room | for |\n|---|---|\n| `webhook/` | x |\n", {"webhook"}),
    Case("a room in a room", "| `scheduler/core/` | x |", {"scheduler/core"}),
    Case("a mention in prose is no row", "see `webhook/` | x", set[str]()),
    Case("a later column is no row", "| x | `webhook/` |", set[str]()),
]


@pytest.mark.parametrize("case", MODULE_CASES, ids=ids)
def test_the_limits_of_a_module(case: Case[str, list[str]]) -> None:
    """At the limit is fine, one more is not."""
    assert module_faults(case.given) == case.want


@pytest.mark.parametrize("case", NAME_CASES, ids=ids)
def test_vague_names(case: Case[str, list[str]]) -> None:
    """A name says what is inside."""
    assert vague_names(case.given) == case.want


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "manager", "handler", "info"])
def test_every_drawer_is_known(name: str) -> None:
    """The words that say nothing, one by one."""
    assert vague_names(f"webhook/{name}.py") == [name]


@pytest.mark.parametrize("case", TRACE_CASES, ids=ids)
def test_traces_of_a_machine(case: Case[str, list[str]]) -> None:
    """Addresses and folders of one machine are found, those of the world are left alone."""
    assert machine_traces(case.given, ["/opt/me"]) == case.want


@pytest.mark.parametrize(
    "host", ["artifactory", "devpi", "mirror", "nexus", "proxy", "pypi", "registry"]
)
def test_every_kind_of_registry_is_known(host: str) -> None:
    """An address is found by the host's name, wherever in it the word stands."""
    address = f"https:{SLASH}/our-{host}.example.org:8081/x"

    assert machine_traces(f"fetched from {address} today") == [address]


@pytest.mark.parametrize("case", TABLE_CASES, ids=ids)
def test_folders_listed_in_a_document(case: Case[str, set[str]]) -> None:
    """A room is listed by being first in a row."""
    assert listed_folders(case.given) == case.want


def test_folders_are_packages_folders_inside_two_of_them_and_the_manifests() -> None:
    """A package deeper down, or inside another package, is a detail of its room."""
    files = ["scheduler/core/__init__.py", "scheduler/core/a/__init__.py", "e2e/x/__init__.py"]

    found = folders([*files, "scheduler/__init__.py", "scheduler/x.py"], ["scheduler", "e2e"])

    assert found == {"scheduler", "scheduler/core", "e2e", "manifests"}


def test_a_folder_without_a_readme_is_found() -> None:
    """Only a README in the room itself counts."""
    files = ["webhook/README.md", "scheduler/core/README.md"]

    assert without_readme(["webhook", "scheduler"], files) == ["scheduler"]


def test_a_crowded_folder_is_found() -> None:
    """Folders count as entries; a folder of one sort may be long."""
    most = [f"scheduler/core/a{number}.py" for number in range(MAX_ENTRIES - 1)]
    most += ["scheduler/core/b/deep.py", "scheduler/core/__init__.py", "scheduler/core/README.md"]
    one_sort = [f"trainer_kai/api/{letter}.py" for letter in "abcdefghijklmnopq"]

    assert crowded_folders([*most, *one_sort]) == {}
    assert crowded_folders([*most, "scheduler/core/c.py"]) == {"scheduler/core": MAX_ENTRIES + 1}
    folders_only = [f"webhook/{number}/x.py" for number in range(MAX_ENTRIES + 1)]
    assert crowded_folders(folders_only) == {"webhook": MAX_ENTRIES + 1}


def test_a_class_name_that_is_there_twice_is_found() -> None:
    """Private classes may share a name, and those of tests."""
    module = "class Plan:\n    pass\n\n\nclass _Row:\n    pass\n"
    modules = {"scheduler/a.py": module, "tests/b.py": module}

    assert repeated_class_names(modules) == {}
    assert repeated_class_names({**modules, "webhook/c.py": module}) == {
        "Plan": ["scheduler/a.py", "webhook/c.py"]
    }


def test_a_folder_of_tests_without_a_folder_of_the_product_is_found() -> None:
    """What tests share lies elsewhere and mirrors nothing."""
    files = ["scheduler/core/a.py", "tests/scheduler/core/test_a.py", "tests/support/b.py"]

    assert unmirrored(files) == []
    assert unmirrored([*files, "tests/webhook/rules/test_c.py"]) == ["webhook/rules"]


def test_the_repository_is_seen() -> None:
    """The tests below would pass on nothing at all."""
    assert {"tests/architecture/test_limits.py", "scheduler/core/__init__.py"} <= MODULES.keys()
    assert not [name for name in PATHS if name.startswith(".venv/")]


def test_the_limits_are_the_documented_ones() -> None:
    """What CONTRIBUTING.md promises is what is enforced; raising a limit changes both."""
    text = (ROOT / "CONTRIBUTING.md").read_text()

    assert f"| file | {MAX_FILE_LINES} lines |" in text
    assert f"without signature and docstring | {MAX_BODY_LINES} lines |" in text
    assert f"| {MAX_ENTRIES} beside" in text


def test_every_module_keeps_the_limits() -> None:
    """No module too long, no body too long, no module without a word about itself."""
    faults = {name: module_faults(path.read_text()) for name, path in MODULES.items()}

    assert {name: found for name, found in faults.items() if found} == {}


def test_no_folder_of_the_product_is_crowded() -> None:
    """What a folder holds is seen at one glance."""
    assert crowded_folders(PATHS) == {}


def test_every_public_class_of_the_product_has_a_name_of_its_own() -> None:
    """One word, one meaning: a name found by searching is the one that was meant."""
    assert repeated_class_names({name: path.read_text() for name, path in MODULES.items()}) == {}


def test_the_tests_lie_where_the_product_does() -> None:
    """The tests of a folder are found under its path."""
    assert unmirrored(MODULES) == []


def test_no_module_imports_a_test() -> None:
    """What several tests need is a module beside them, or in `tests/support`."""
    imported = re.compile(r"^\s*(?:from|import) tests\.[\w.]*\btest_\w+", re.MULTILINE)
    found = {name: imported.findall(path.read_text()) for name, path in MODULES.items()}

    assert imported.search("from tests.a.test_b import c")
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_every_module_is_named_after_what_it_holds() -> None:
    """A drawer for everything ends up holding everything."""
    assert [name for name in MODULES if vague_names(name)] == []


def test_no_file_leads_to_one_machine() -> None:
    """What is written here holds on every machine, lock files included."""
    own_paths = [str(path) for path in (ROOT, Path.home()) if len(path.parts) > 2]
    found = {name: machine_traces(text_of(path), own_paths) for name, path in PATHS.items()}

    assert {name: traced for name, traced in found.items() if traced} == {}


def test_every_folder_has_its_readme() -> None:
    """The rules of a folder without a README are unknown."""
    assert without_readme(FOLDERS, PATHS.keys()) == []


def test_the_table_of_folders_is_complete() -> None:
    """CONTRIBUTING lists every room, and no room that is not there."""
    assert listed_folders((ROOT / "CONTRIBUTING.md").read_text()) == FOLDERS
