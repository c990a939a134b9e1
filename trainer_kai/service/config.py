"""Read the settings of a process from a file, the environment and flags.

The `__main__` of a process calls `read_or_exit` once with its model; all other modules get the part
of the settings that they need as an argument. A setting is written in one of three places: a nested
key of a YAML file (`log: {level: debug}`), an environment variable (TRAINER_KAI_LOG_LEVEL), or a
flag (--log-level debug). A flag overrides a variable, a variable overrides the file, and the file
overrides the default.

All faults are reported together, also those of overridden values: the next start may not have the
flag that overrides them. Settings must not hold secrets, because all of them are printed.
"""

import difflib
import re
import sys
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.version import version_text

_PREFIX: Final = "TRAINER_KAI_"
# Variables with our prefix that are not settings: Kubernetes sets some for Services with the name
# trainer-kai-…, and the test chain has a variable for its folder.
_NO_SETTING: Final = re.compile(
    r"TRAINER_KAI_(CACHE|CHAIN|(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_\w+)?))"
)
_REMOVED: Final = {  # the replacement, by the end of the name of a removed setting
    "queue_permission": (
        "was removed; instead of enforce, set queue_access.unannotated to closed; instead of warn "
        "or off, set nothing"
    ),
}
_RENAMED: Final = {"repair_grace_s": "staleness_grace_s"}  # ends of names, the old and the new
_OPTIONS: Final[Mapping[str, str]] = {
    "--config": "A YAML file with settings; may be repeated, and a later file overrides earlier "
    "ones.",
    "--print-config": "Print all settings with their values and the source of each value.",
    "--version": "Print the versions of trainer-kai and of Python.",
    "--help": "Print this help.",
}
S = TypeVar("S", bound=BaseModel)


class Setting(NamedTuple):
    """The name of a setting inside a section has a dot."""

    name: str
    doc: str
    default: Any
    adapter: TypeAdapter[Any]

    @property
    def variable(self) -> str:
        return _PREFIX + self.name.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        return "--" + re.sub("[._]", "-", self.name)


def settings_of(
    model: type[BaseModel], defaults: object = None, prefix: str = ""
) -> dict[str, Setting]:
    """In the order of the fields."""
    settings: dict[str, Setting] = {}
    for key, info in model.model_fields.items():
        name, kind = prefix + key, info.annotation
        default = info.default if defaults is None else getattr(defaults, key)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            settings |= settings_of(kind, default, f"{name}.")
        else:
            adapter = TypeAdapter[Any](cast("Any", Annotated[kind, info]))
            doc = " ".join((info.description or "").split())
            settings[name] = Setting(name, doc, default, adapter)
    return settings


class _SourceEntry(NamedTuple):
    key: str  # the name of the setting in this source
    text: str | None  # None if the value is missing
    label: str  # the source and the key


_SourceItem: TypeAlias = _SourceEntry | FieldError
_Values: TypeAlias = Mapping[str, tuple[Any, str]]  # by name: the value, and its source


class _SettingSources:
    """Sources are read in ascending order of precedence."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.table = settings_of(model)
        self.faults: list[FieldError] = []
        self.invalid: set[str] = set()  # settings with a value that is not valid
        self.values: dict[str, tuple[Any, str]] = {
            name: (setting.default, "default") for name, setting in self.table.items()
        }

    def read_source(self, entries: Iterable[_SourceItem], names: Mapping[str, Setting]) -> None:
        """*names* has the settings by their name in this source."""
        seen: set[str] = set()
        for entry in entries:
            if isinstance(entry, FieldError):
                self.faults.append(entry)
            elif entry.key not in names:
                self.faults.append(FieldError(entry.label, _unknown_setting(entry.key, names)))
            elif entry.key in seen:
                self.faults.append(FieldError(entry.label, "is given more than once"))
            elif entry.text is None:
                self.faults.append(FieldError(entry.label, "needs a value"))
            else:
                seen.add(entry.key)
                self._set(names[entry.key], entry.text, entry.label)

    def _set(self, setting: Setting, text: str, label: str) -> None:
        try:
            value = setting.adapter.validate_strings(text)
        except ValidationError as error:
            self.faults += [FieldError(label, _value_fault(text, it)) for it in error.errors()]
            self.invalid.add(setting.name)
        else:
            self.values[setting.name] = (value, label)

    def section_faults(self, error: ValidationError) -> Iterator[FieldError]:
        """Yield the faults of sections with valid single values, and the sources of the values."""
        for fault in error.errors():
            section = ".".join(map(str, fault["loc"]))
            names = [name for name in self.values if name.startswith(f"{section}.")]
            if self.invalid.isdisjoint(names):
                given = [label for name in names if (label := self.values[name][1]) != "default"]
                yield FieldError(section, f"{_fault_text(fault)} ({', '.join(given)})")


def load(model: type[S], argv: Sequence[str], environ: Mapping[str, str]) -> S:
    """Raise a `ConfigError` with all faults of all sources."""
    return _read(model, argv, environ)[0]


def read_or_exit(model: type[S], argv: Sequence[str], environ: Mapping[str, str]) -> S:
    """Exit with 0 after an option that prints, and with 2 for invalid settings."""
    if not {"--help", "-h"}.isdisjoint(argv):
        print(_help(model))
        raise SystemExit(0)
    if "--version" in argv:
        print(version_text(sys.version_info))
        raise SystemExit(0)
    try:
        settings, values = _read(model, argv, environ)
    except ConfigError as error:
        print(f"The settings are invalid:\n{error}", file=sys.stderr)
        raise SystemExit(2) from None
    if "--print-config" in argv:
        print(_effective_config(values))
        raise SystemExit(0)
    return settings


def _read(model: type[S], argv: Sequence[str], environ: Mapping[str, str]) -> tuple[S, _Values]:
    sources = _SettingSources(model)
    flags = list(_flag_entries(argv))
    for it in flags:
        if isinstance(it, _SourceEntry) and it.key == "--config":
            sources.read_source(_file_entries(it, sources.table), sources.table)
    by_variable = {setting.variable: setting for setting in sources.table.values()}
    sources.read_source(_variable_entries(environ, by_variable), by_variable)
    by_flag = {setting.flag: setting for setting in sources.table.values()}
    sources.read_source((it for it in flags if it[0] not in _OPTIONS), by_flag)
    nested: dict[str, Any] = {}
    for name, (value, _) in sources.values.items():
        *path, last = name.split(".")
        inner = nested
        for section in path:
            inner = inner.setdefault(section, {})
        inner[last] = value
    try:
        settings = model.model_validate(nested)
    except ValidationError as error:  # the values are valid one by one, but not together
        raise ConfigError([*sources.faults, *sources.section_faults(error)]) from None
    if sources.faults:
        raise ConfigError(sources.faults)
    return settings, sources.values


def _file_entries(flag: _SourceEntry, known: Collection[str]) -> Iterator[_SourceItem]:
    """Read the keys of a YAML file; a key inside a section gets the section and a dot in front."""
    if not flag.text:
        yield FieldError(flag.label, "needs a value")
        return
    path = flag.text
    try:
        root = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        yield FieldError(where, f"is not valid YAML: {getattr(error, 'problem', None) or error}")
    except (OSError, ValueError, RecursionError) as error:
        yield FieldError(flag.label, f"cannot read the file: {error}")
    else:
        if isinstance(root, yaml.MappingNode):
            yield from _mapping_entries(root, path, "", known)
        elif root is not None and not root.tag.endswith(":null"):
            yield FieldError(path, "should be a mapping of settings to values")


def _mapping_entries(
    node: yaml.MappingNode, path: str, section: str, known: Collection[str]
) -> Iterator[_SourceItem]:
    sections: set[str] = set()
    for key, value in node.value:
        label = f"{path}:{key.start_mark.line + 1}"
        if not key.tag.endswith(":str"):
            yield FieldError(label, "the name of a setting should be a string")
            continue
        name = f"{section}.{key.value}".removeprefix(".")
        if isinstance(value, yaml.ScalarNode):
            text = None if value.tag.endswith(":null") else value.value
            yield _SourceEntry(name, text, f"{label} {name}")
        elif name in sections:
            yield FieldError(f"{label} {name}", "is given more than once")
        elif isinstance(value, yaml.MappingNode) and _is_section(name, value, known):
            sections.add(name)
            yield from _mapping_entries(value, path, name, known)
        elif name in known:
            yield FieldError(f"{label} {name}", "should be a single value")
        else:
            yield _SourceEntry(name, None, f"{label} {name}")


def _variable_entries(environ: Mapping[str, str], known: Container[str]) -> Iterator[_SourceItem]:
    for name in sorted(name for name in environ if name.startswith(_PREFIX)):
        if name in known or not _NO_SETTING.fullmatch(name):
            yield _SourceEntry(name, environ[name], f"environment {name}")


def _flag_entries(argv: Sequence[str]) -> Iterator[_SourceItem]:
    """Read `--name VALUE` and `--name=VALUE`."""
    left = list(argv)
    while left:
        flag, equals, text = left.pop(0).partition("=")
        label = f"flag {flag}"
        if not flag.startswith("--"):
            yield FieldError(label, "is not a flag; write --name VALUE or --name=VALUE")
        elif equals or flag in ("--print-config", "--version", "--help"):
            yield _SourceEntry(flag, text, label)
        else:
            is_value = bool(left) and not left[0].startswith("--")
            yield _SourceEntry(flag, left.pop(0) if is_value else None, label)


def _unknown_setting(key: str, names: Iterable[str]) -> str:
    plain = _plain_name(key)
    removed = next((_REMOVED[it] for it in _REMOVED if plain.endswith(it)), "")
    inside = _settings_in(key, names)
    if removed:
        return removed
    for old, new in _RENAMED.items():
        now = [it for it in names if _plain_name(it).endswith(new)]
        if plain.endswith(old) and now:
            return f"was renamed; set {now[0]}"
    if inside:
        return f"is a section with the settings {', '.join(inside)}"
    without_prefix = {name.removeprefix(_PREFIX): name for name in names}
    # the name of a setting if its process runs alone
    without_section = {name.partition(".")[2]: name for name in names}
    named = {**without_section, **without_prefix}
    near = difflib.get_close_matches(key.removeprefix(_PREFIX), named, n=1)
    hint = f"did you mean {named[near[0]]}?" if near else "--help lists all settings"
    return f"is not a setting; {hint}"


def _plain_name(key: str) -> str:
    """Return the name of a setting, a variable or a flag in one spelling."""
    return re.sub("[.-]", "_", key).lower()


def _is_section(name: str, node: yaml.MappingNode, names: Collection[str]) -> bool:
    """Say whether a name is a section or resembles one; then its keys are reported one by one."""
    # Without keys nothing would be reported.
    if not node.value:
        return bool(_settings_in(name, names))
    sections = {it for path in names for it in (path.rpartition(".")[0], *path.split(".")[:-1])}
    return bool(difflib.get_close_matches(name, sections, n=1, cutoff=0.8))


def _settings_in(section: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(f"{section}.")]


def _value_fault(text: str, fault: ErrorDetails) -> str:
    fault_text = _fault_text(fault)
    names_invalid_part = fault_text.startswith("'")
    if names_invalid_part:
        return fault_text
    separator = " " if fault_text.startswith("should") else ": "
    return f"{text!r}{separator}{fault_text}"


def _fault_text(fault: ErrorDetails) -> str:
    return fault["msg"].removeprefix("Value error, ").removeprefix("Input ")


def _help(model: type[BaseModel]) -> str:
    lines = [model.__doc__ or "", ""]
    for flag, doc in _OPTIONS.items():
        lines += [flag, f"    {doc}"]
    for setting in settings_of(model).values():
        lines += [setting.flag, f"    {setting.doc} Default: {setting.default!r}."]
    return "\n".join(lines)


def _effective_config(values: _Values) -> str:
    """Return all settings as a YAML file with the same values; comments name the sources."""
    lines: list[str] = []
    open_: list[str] = []
    for name, (value, label) in values.items():
        *path, key = name.split(".")
        same = sum(1 for _ in takewhile(lambda it: it[0] == it[1], zip(path, open_, strict=False)))
        lines += (f"{'  ' * depth}{path[depth]}:" for depth in range(same, len(path)))
        open_ = path
        written = yaml.safe_dump(value, width=sys.maxsize).removesuffix("\n...\n").rstrip("\n")
        lines.append(f"{'  ' * len(path)}{key}: {written}  # {label}")
    return "\n".join(lines)
