"""The settings: which source outranks which, and every fault of every source at once."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pydantic
import pytest
import yaml

from tests.support.case import Case, ids
from trainer_kai.errors import ConfigError
from trainer_kai.service.config import Setting, _read, load, settings_of
from trainer_kai.service.settings import (
    PROCESSES,
    AllSettings,
    PodgrouperSettings,
    SchedulerSettings,
    Settings,
)

Sources: TypeAlias = tuple[str, Mapping[str, str], Sequence[str]]  # file, environment, flags

LEVEL = "TRAINER_KAI_LOG_LEVEL"
REMOVED = (
    "was removed; instead of enforce, set queue_access.unannotated to closed; instead of warn or "
    "off, set nothing"
)
IN_FILE = "log: {level: debug}"

HEALTH = [f"health.{name}" for name in ("address", "port", "snapshot", "metrics")]
MODELS: Mapping[str, type[Settings]] = {**PROCESSES, "all": AllSettings}
EVERY_SETTING = {  # once, where several processes have the same
    (setting.name, str(setting.default), setting.doc): pytest.param(
        model, setting, id=f"{process} {setting.name}"
    )
    for process, model in MODELS.items()
    for setting in settings_of(model).values()
}.values()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.yaml"


def read(model: type[Settings], sources: Sources, file: Path) -> Any:
    text, environ, argv = sources
    if text:
        file.write_text(text)
    return load(model, [*([f"--config={file}"] if text else []), *argv], environ)


def faults(sources: Sources, file: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(SchedulerSettings, sources, file)
    return [str(fault).replace(str(file), "FILE") for fault in caught.value.faults]


# the sources -> the level of the log
RANKS: list[Case[Sources, str]] = [
    Case("without a word it is the default", ("", {}, []), "info"),
    Case("the file outranks the default", (IN_FILE, {}, []), "debug"),
    Case("the environment outranks the file", (IN_FILE, {LEVEL: "warning"}, []), "warning"),
    Case(
        "a flag outranks the environment",
        (IN_FILE, {LEVEL: "warning"}, ["--log-level=error"]),
        "error",
    ),
    Case("a flag outranks the file", (IN_FILE, {}, ["--log-level", "error"]), "error"),
    Case("another setting changes nothing", ("mode: external", {}, ["--context=a"]), "info"),
    Case("a file may hold nothing", ("# nothing\n", {}, []), "info"),
    Case("or only the beginning of a document", ("---\n", {}, []), "info"),
    Case("a variable of another project is not ours", ("", {"LOG_LEVEL": "x"}, []), "info"),
    Case(
        "what Kubernetes says about Services that carry our name is no setting",
        (
            "",
            {
                "TRAINER_KAI_PORT": "tcp://10.0.0.1:443",
                "TRAINER_KAI_WEBHOOK_SERVICE_HOST": "10.0.0.1",
                "TRAINER_KAI_WEBHOOK_SERVICE_PORT": "443",
                "TRAINER_KAI_WEBHOOK_SERVICE_PORT_HTTPS": "443",
                "TRAINER_KAI_WEBHOOK_PORT_443_TCP_ADDR": "10.0.0.1",
            },
            [],
        ),
        "info",
    ),
    Case("nor is the folder of the test chain", ("", {"TRAINER_KAI_CACHE": "/x"}, []), "info"),
    Case("nor is the name of that chain", ("", {"TRAINER_KAI_CHAIN": "oldest"}, []), "info"),
    Case("questions are no settings", ("", {}, ["--print-config", "--help"]), "info"),
]


@pytest.mark.parametrize("case", RANKS, ids=ids)
def test_flags_outrank_the_environment_and_that_the_file(
    case: Case[Sources, str], file: Path
) -> None:
    """One setting, seen through every combination of sources."""
    assert read(SchedulerSettings, case.given, file).log.level == case.want


def test_of_two_files_the_later_one_outranks(tmp_path: Path) -> None:
    """What it does not say stays as the first one has it."""
    (tmp_path / "a").write_text("log: {level: debug, format: console}")
    (tmp_path / "b").write_text("log: {level: error}")

    settings = load(SchedulerSettings, ["--config", f"{tmp_path}/a", f"--config={tmp_path}/b"], {})

    assert (settings.log.level, settings.log.format) == ("error", "console")


# one source with a mistake -> the fault
FAULTS: list[Case[Sources, list[str]]] = [
    Case(
        "a word that is not among the choices",
        ("mode: extern", {}, []),
        ["FILE:1 mode: 'extern' should be 'bundled' or 'external'"],
    ),
    Case(
        "a number out of its range, in the second line",
        ("\nhealth: {port: 70000}", {}, []),
        ["FILE:2 health.port: '70000' should be less than or equal to 65535"],
    ),
    Case(
        "no number",
        ("", {"TRAINER_KAI_LEADER_RETRY_S": "nan"}, []),
        ["environment TRAINER_KAI_LEADER_RETRY_S: 'nan' should be a finite number"],
    ),
    Case(
        "no name of Kubernetes",
        ("", {}, ["--scheduler-name", "Kai_1"]),
        [
            (
                "flag --scheduler-name: 'Kai_1' should have at most 63 of a-z, 0-9, - and .,"
                " and a letter or digit at each end"
            )
        ],
    ),
    Case(
        "a misspelt key",
        ("leader: {retrys: 2}", {}, []),
        ["FILE:1 leader.retrys: is not a setting; did you mean leader.retry_s?"],
    ),
    Case(
        "a key outside of its section",
        ("level: debug", {}, []),
        ["FILE:1 level: is not a setting; did you mean log.level?"],
    ),
    Case(
        "a misspelt variable",
        ("", {"TRAINER_KAI_LOGLEVEL": "debug"}, []),
        ["environment TRAINER_KAI_LOGLEVEL: is not a setting; did you mean TRAINER_KAI_LOG_LEVEL?"],
    ),
    Case(
        "a variable that resembles none",
        ("", {"TRAINER_KAI_XYZ": "1"}, []),
        ["environment TRAINER_KAI_XYZ: is not a setting; --help lists all settings"],
    ),
    Case(
        "a misspelt flag with a value of its own",
        ("", {}, ["--log-levle", "debug"]),
        ["flag --log-levle: is not a setting; did you mean --log-level?"],
    ),
    Case(
        "a variable that was removed",
        ("", {"TRAINER_KAI_QUEUE_PERMISSION": "enforce"}, []),
        [f"environment TRAINER_KAI_QUEUE_PERMISSION: {REMOVED}"],
    ),
    Case(
        "a flag that was removed",
        ("", {}, ["--queue-permission", "warn"]),
        [f"flag --queue-permission: {REMOVED}"],
    ),
    Case(
        "a key that was removed",
        ("queue_permission: warn", {}, []),
        [f"FILE:1 queue_permission: {REMOVED}"],
    ),
    Case(
        "a variable that was renamed",
        ("", {"TRAINER_KAI_REPAIR_GRACE_S": "30"}, []),
        ["environment TRAINER_KAI_REPAIR_GRACE_S: was renamed; set TRAINER_KAI_STALENESS_GRACE_S"],
    ),
    Case(
        "a flag that was renamed",
        ("", {}, ["--repair-grace-s", "30"]),
        ["flag --repair-grace-s: was renamed; set --staleness-grace-s"],
    ),
    Case(
        "a key that was renamed",
        ("repair_grace_s: 30", {}, []),
        ["FILE:1 repair_grace_s: was renamed; set staleness_grace_s"],
    ),
    Case(
        "a value without a flag",
        ("", {}, ["debug"]),
        ["flag debug: is not a flag; write --name VALUE or --name=VALUE"],
    ),
    Case("a flag without its value", ("", {}, ["--mode"]), ["flag --mode: needs a value"]),
    Case(
        "a flag with another one for its value",
        ("", {}, ["--mode", "--context=a"]),
        ["flag --mode: needs a value"],
    ),
    Case(
        "a flag given twice",
        ("", {}, ["--mode=external", "--mode=bundled"]),
        ["flag --mode: is given more than once"],
    ),
    Case(
        "a key given twice",
        ("mode: bundled\nmode: external", {}, []),
        ["FILE:2 mode: is given more than once"],
    ),
    Case(
        "a section given twice",
        ("log: {level: debug}\nlog: {format: json}", {}, []),
        ["FILE:2 log: is given more than once"],
    ),
    Case("a key without a value", ("mode:", {}, []), ["FILE:1 mode: needs a value"]),
    Case(
        "a section with one value",
        ("health: 80", {}, []),
        [f"FILE:1 health: is a section with the settings {', '.join(HEALTH)}"],
    ),
    Case(
        "sections that do not exist",
        ("foo: {}\nlogs: {level: debug}\nlog: {lvl: {}, far: []}\nhealth: {}", {}, []),
        [
            "FILE:1 foo: is not a setting; --help lists all settings",
            "FILE:2 logs.level: is not a setting; did you mean log.level?",
            "FILE:3 log.lvl: is not a setting; did you mean log.level?",
            "FILE:3 log.far: is not a setting; did you mean log.format?",
        ],
    ),
    Case(
        "a setting with several values",
        ("context: [a, b]\nlog: {level: {a: b}}", {}, []),
        ["FILE:1 context: should be a single value", "FILE:2 log.level: should be a single value"],
    ),
    Case(
        "keys that are no text",
        ("1: a\non: b\n? [c]\n: d\n<<: {mode: external}", {}, []),
        [f"FILE:{line}: the name of a setting should be a string" for line in (1, 2, 3, 5)],
    ),
    Case(
        "a list of settings",
        ("- mode", {}, []),
        ["FILE: should be a mapping of settings to values"],
    ),
    Case(
        "a file that is no YAML",
        ("mode: bundled\nlog: [", {}, []),
        ["FILE:2: is not valid YAML: expected the node content, but found '<stream end>'"],
    ),
    Case(
        "two documents",
        ("mode: bundled\n---\nmode: external", {}, []),
        ["FILE:2: is not valid YAML: but found another document"],
    ),
    Case(
        "a file that does not end",
        ("[" * 5000, {}, []),
        ["flag --config: cannot read the file: maximum recursion depth exceeded"],
    ),
    Case(
        "no file",
        ("", {}, ["--config=/no/such"]),
        [("flag --config: cannot read the file: [Errno 2] No such file or directory: '/no/such'")],
    ),
    Case("no name of a file", ("", {}, ["--config"]), ["flag --config: needs a value"]),
    Case(
        "values that are right, but not together",
        ("leader: {retry_s: 9}", {}, ["--leader-renew-deadline-s=8"]),
        [
            (
                "leader: renew_deadline_s should be more than 1.2 times retry_s"
                " (flag --leader-renew-deadline-s, FILE:1 leader.retry_s)"
            )
        ],
    ),
    Case(
        "equal where more is needed",
        ("", {}, ["--leader-write-s=5"]),
        [
            (
                "leader: lease_s should be more than renew_deadline_s plus write_s"
                " (flag --leader-write-s)"
            )
        ],
    ),
    Case(
        "requests for nodes where none are asked for",
        ("autoscaling: {provisioning_requests: true}", {}, []),
        [
            (
                "autoscaling: enabled should be true if provisioning_requests is: without it no"
                " nodes are asked for (FILE:1 autoscaling.provisioning_requests)"
            )
        ],
    ),
    Case(
        "one that is overruled",
        ("mode: extern", {}, ["--mode=external"]),
        ["FILE:1 mode: 'extern' should be 'bundled' or 'external'"],
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_faults(case: Case[Sources, list[str]], file: Path) -> None:
    """Each names its source, what is wrong, and what would be right."""
    assert faults(case.given, file) == case.want


def test_all_faults_of_all_sources_are_reported_at_once(file: Path) -> None:
    """One start of the process shows all of them."""
    text = "mode: x\nlog:\n  levl: debug\n  format: y\n"
    environ = {"TRAINER_KAI_LEADER_DURATION_S": "0", "TRAINER_KAI_MOD": "x"}
    argv = ["--health-port=-1", "stray", "--contxt=a", "--leader-name"]

    found = faults((text, environ, argv), file)

    assert [fault.split(": ")[0] for fault in found] == [
        "FILE:1 mode",
        "FILE:3 log.levl",
        "FILE:4 log.format",
        "environment TRAINER_KAI_LEADER_DURATION_S",
        "environment TRAINER_KAI_MOD",
        "flag --health-port",
        "flag stray",
        "flag --contxt",
        "flag --leader-name",
    ]


def test_a_file_that_is_no_text_is_a_fault(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")

    (fault,) = faults(("", {}, [f"--config={file}"]), file)
    assert fault.startswith("flag --config: cannot read the file: 'utf-8' codec")


class Toy(pydantic.BaseModel):
    """A model with a kind of value that no process has yet."""

    on: bool = False


@pytest.mark.parametrize("text", ["true", "yes", "1"])
def test_a_switch_is_written_like_any_value(text: str, file: Path) -> None:
    file.write_text(f"'on': {text}")

    assert load(Toy, [f"--on={text}"], {}).on
    assert load(Toy, [], {"TRAINER_KAI_ON": text}).on
    assert load(Toy, [f"--config={file}"], {}).on


@pytest.mark.parametrize("text", ["0123", "on", "2026-01-01", "null-queue", "1e3"])
def test_what_is_written_is_the_value(text: str, file: Path) -> None:
    """YAML would make numbers, switches and dates of them."""
    read_back = read(SchedulerSettings, (f"default_queue: {text}", {}, []), file)

    assert read_back.default_queue == text


@pytest.mark.parametrize(("model", "setting"), EVERY_SETTING)
def test_each_setting_can_be_given_in_each_way(
    model: type[Settings], setting: Setting, file: Path
) -> None:
    """Its default, written down, is heard from every source and read back as the same."""
    text = str(setting.default)
    *section, key = setting.name.split(".")
    entry: dict[str, Any] = {key: text}
    for name in reversed(section):
        entry = {name: entry}
    file.write_text(yaml.safe_dump(entry))
    label = f"{file}:{len(section) + 1} {setting.name}"
    ways: dict[str, tuple[list[str], dict[str, str]]] = {
        label: (["--config", str(file)], {}),
        f"environment {setting.variable}": ([], {setting.variable: text}),
        f"flag {setting.flag}": ([setting.flag, text], {}),
    }

    for source, (argv, environ) in ways.items():
        settings, values = _read(model, argv, environ)
        assert settings == model()
        assert values[setting.name] == (setting.default, source)


@pytest.mark.parametrize(("model", "setting"), EVERY_SETTING)
def test_each_setting_says_what_it_is_and_in_what_unit(
    model: type[Settings], setting: Setting
) -> None:
    """A number without a unit is guessed; a secret would be printed."""
    name = setting.name.rpartition(".")[2]

    assert setting.doc.endswith(".")
    assert "\n" not in setting.doc
    if isinstance(setting.default, int | float) and not isinstance(setting.default, bool):
        assert re.fullmatch(r"port|max_\w+|\w+_(s|ms|days|bytes|count|weight)", name)
    if not name.endswith(
        ("_name", "_file")
    ):  # a Secret may be called by its name, and be in a file
        assert not [word for word in ("password", "secret", "token", "key") if word in name]
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        setattr(model(), setting.name.split(".")[0], None)


@pytest.mark.parametrize(
    "process", [p for p, of in PROCESSES.items() if "leader" in of.model_fields]
)
def test_each_process_has_a_lease_of_its_own(process: str) -> None:
    """Two processes on one Lease would lead in turn."""
    assert (
        load(PROCESSES[process], [], {}).model_dump()["leader"]["name"] == f"trainer-kai-{process}"
    )


def test_all_in_one_have_their_own_behind_their_names(file: Path) -> None:
    """What they share stands once; each has the settings that it would have alone."""
    file.write_text("mode: external\npodgrouper: {leader: {lease_s: 30}}\n")
    argv = ["--config", str(file), "--scheduler-leader-name=x"]

    both = load(AllSettings, argv, {"TRAINER_KAI_LOG_LEVEL": "debug"})

    argv = ["--mode=external", "--leader-lease-s=30", "--log-level=debug"]
    assert both.settings_for(PodgrouperSettings, both.podgrouper) == load(
        PodgrouperSettings, argv, {}
    )
    argv = ["--mode=external", "--leader-name=x", "--log-level=debug"]
    assert both.settings_for(SchedulerSettings, both.scheduler) == load(SchedulerSettings, argv, {})
