"""CEL expressions that select devices: each is compiled once, and bounded in what it costs.

An expression that fails on a device, or returns no boolean, does not match it; the first such
failure is kept for the message. The library bounds what one evaluation may repeat and how deep it
may nest. What it may cost on one device, and on all, is bounded here by its text. All that costs
takes steps from an allowance; when that is used up there is no answer yet.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from scheduler.state.claims.cel_functions import FUNCTIONS, CelMap, quantity, semver
from trainer_kai.api.bounds import LOOPING_SELECTOR_CHARACTERS, SELECTOR_CHARACTERS
from trainer_kai.api.device_kinds import Device, DeviceAttribute
from trainer_kai.api.quantity import QuantityError

_MOST_COMPILED: Final = 4096  # expressions that are kept compiled
_MOST_ANSWERS: Final = 400_000  # of all expressions that are kept
_MOST_DEVICES: Final = 16_384  # different devices on which one expression is evaluated
_MOST_STEPS: Final = 20_000  # of one expression on one device
_MOST_STEPS_OF_ALL: Final = 1_000_000  # of one expression on all devices
_STEPS_TO_COMPILE: Final = 1_000  # about as many microseconds, and for each character
_STEPS_PER_CHARACTER: Final = 2
_ERROR_CHARACTERS: Final = 200
_LOOPS: Final = re.compile(r"\b(?:all|exists|exists_one|existsOne|map|filter)\s*\(")
_LONGER_TEXTS: Final = re.compile(r"\b(?:replace|join|format|quote)\s*\(")
_REUSED: Final = re.compile(r"\b(?:bind|map)\s*\(")  # with + each can double what it was given
_MOST_REPETITIONS: Final = 10_000  # as the library has it
_ATTRIBUTES: Final = 64  # more than a device has
_LEAST: Final = 50
_COPIED: Final = 10  # characters in a step
_MOST_SCHEMAS: Final = 1_000  # of devices, that an expression remembers
_BEFORE_NAMES: Final = 2  # values of a device without a name
NO_CEL: Final = "cannot be read, because the Python package cel-expr-python is not installed"
_LITERAL: Final = re.compile(r"\"([^\"\\\n]*)\"|'([^'\\\n]*)'")
# What could read an attribute whose name is not in the text; beside loops all but plain accesses.
_ANY: Final = re.compile(
    r"[+{\\]|\"\"\"|'''|\b(?:bind|size|replace|substring|join|split|format|reverse|trim|quote)\s*\("
)
_ANY_VALUE: Final = re.compile(r"\b(?:attributes|capacity)\s*\[\s*\](?!\s*[.\[),])")
_ACCESS: Final = re.compile(
    r"\bdevice\s*\.\s*(?:driver|allowMultipleAllocations|"
    r"(?:attributes|capacity)\s*\[\s*\]\s*(?:\[\s*\]|\.\s*[A-Za-z_]\w*(?![\w]|\s*\()))(?!\s*\[)"
)
_DEVICE: Final = re.compile(r"\bdevice\b")

CelValue: TypeAlias = str | int | bool | CelMap
_Name: TypeAlias = tuple[str, str]  # domain and name
_Content: TypeAlias = tuple[object, ...]


class Outcome(NamedTuple):
    """Whether a device matches; *error* is why an expression has no answer."""

    matches: bool
    error: str = ""


class DeviceSchema:
    """What the devices of some kind have, in the order of their values; equal ones are one."""

    def __init__(self, attributes: tuple[_Name, ...], capacity: tuple[_Name, ...]) -> None:
        self.names: Final = (
            *[(*it, False) for it in attributes],
            *[(*it, True) for it in capacity],
        )


class SelectableDevice(NamedTuple):
    """What expressions read of a device: by domain and name."""

    driver: str
    shares: bool  # several claims may have a part of it
    attributes: Mapping[_Name, CelValue]
    capacity: Mapping[_Name, CelMap]
    schema: DeviceSchema
    values: tuple[object, ...]  # of all names of the schema, before them driver and sharing


class _Value(Protocol):
    def value(self) -> Any: ...


class _Program(Protocol):
    def eval(self, *, data: Mapping[str, Any]) -> _Value: ...


class _Compiled:
    """One expression, and its answers for devices with equal content."""

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self.fault = _length_fault(text)
        self.is_read = bool(self.fault)
        self.is_compiled = False
        self.steps = _LEAST  # on one device
        self.answers: Final[dict[_Content, Outcome]] = {}
        self._most_devices = 0
        self._is_opaque = True
        self._program: _Program | None = None
        self._domains: tuple[str, ...] = ()
        # By schema, the names that it may read, and where they are among the values.
        self._reads: Final[dict[DeviceSchema, tuple[_Content, Callable[..., object]]]] = {}

    @property
    def steps_to_read(self) -> int:
        return 0 if self.is_read else _STEPS_TO_COMPILE + _STEPS_PER_CHARACTER * len(self._text)

    def read(self) -> None:
        """Compile it, unless it is too costly; know what it may read."""
        if self.is_read:
            return
        text, bare = self._text, _LITERAL.sub("", self._text)
        self._is_opaque = _is_opaque(text, bare)
        self.steps = _most_steps(text, bare, reads_all=self._is_opaque)
        self._most_devices = min(_MOST_DEVICES, max(1, _MOST_STEPS_OF_ALL // self.steps))
        literals = ["".join(it) for it in _LITERAL.findall(text)]
        self._domains = tuple(dict.fromkeys(literals))
        self.fault = _cost_fault(self.steps)
        self.is_read = True
        if not self.fault:
            try:
                self._program = _environment().compile(text)
                self.is_compiled = True
            except RuntimeError as error:
                self.fault = f"is no valid CEL expression: {_first_line(error)}"
            except ModuleNotFoundError:
                self.fault = NO_CEL

    def release(self) -> None:
        """Keep only what is wrong with it."""
        self.answers.clear()
        self._reads.clear()
        self._program = None
        self.is_compiled = False
        self.is_read = bool(self.fault)

    def content(self, device: SelectableDevice) -> _Content:
        """Return all that the answer depends on: mostly few of the attributes."""
        found = self._reads.get(device.schema)
        if found is None:
            if len(self._reads) >= _MOST_SCHEMAS:
                self._reads.clear()
            found = self._reads[device.schema] = self._read_of(device.schema)
        names, values = found
        return names, values(device.values)

    def _read_of(self, schema: DeviceSchema) -> tuple[_Content, Callable[..., object]]:
        is_read = [self._is_opaque or name[1] in self._text for name in schema.names]
        places = [n for n, it in enumerate(is_read, _BEFORE_NAMES) if it]
        names = tuple([name for name, it in zip(schema.names, is_read, strict=True) if it])
        return names, itemgetter(*range(_BEFORE_NAMES), *places)

    def known(self, content: _Content) -> Outcome | None:
        found = self.answers.get(content)
        if found is None and (self.fault or len(self.answers) >= self._most_devices):
            return Outcome(
                False,  # noqa: FBT003 - no match
                self.fault or f"is evaluated on at most {self._most_devices} different devices",
            )
        return found

    def answer(self, device: SelectableDevice) -> Outcome:
        assert self._program is not None
        try:
            found = self._program.eval(data={"device": self._variables(device)}).value()
        except RuntimeError as error:  # it repeats or nests too much
            self.fault = f"costs too much: {_first_line(error)}"
            return Outcome(False, self.fault)  # noqa: FBT003 - no match
        if isinstance(found, bool):
            return Outcome(found)
        is_error = not isinstance(found, int | float | list | dict) and found is not None
        text = _first_line(found) if is_error else f"returns {found!r}, not a boolean"
        return Outcome(False, text[:_ERROR_CHARACTERS])  # noqa: FBT003 - no match

    def _variables(self, device: SelectableDevice) -> dict[str, Any]:
        """Return the device as a map; a domain that it lacks is empty, not an error."""
        found: dict[str, Any] = {
            "driver": device.driver,
            "allowMultipleAllocations": device.shares,
        }
        for name, values in (("attributes", device.attributes), ("capacity", device.capacity)):
            domains: dict[str, dict[str, Any]] = {it: {} for it in self._domains}
            for (domain, it), value in values.items():
                domains.setdefault(domain, {})[it] = value
            found[name] = domains
        return found


class Selectors:
    """The expressions of all claims and classes, and the steps that they may take now."""

    def __init__(self, allowed: float = math.inf) -> None:
        self._known: Final[dict[str, _Compiled]] = {}
        self._compiled_count = 0
        self._answer_count = 0
        self.allowed = allowed
        self.used = 0

    def spend(self, steps: int) -> bool:
        """Take steps, the last of which may be beyond what is allowed; say whether any was left."""
        if self.used >= self.allowed:
            return False
        self.used += steps
        return True

    def fault(self, text: str) -> str:
        """Return why an expression cannot be used, or "": also while it is not read."""
        self.read(text)
        return self._compiled(text).fault

    def is_read(self, text: str) -> bool:
        return self._compiled(text).is_read

    def read(self, text: str) -> bool:
        """Compile an expression if that is allowed now; say whether that is done."""
        one = self._compiled(text)
        if not one.is_read:
            if not self.spend(one.steps_to_read):
                return False
            one.read()
            self._compiled_count += one.is_compiled
            self._release_others(one)
        return True

    def evaluate(self, expressions: Iterable[str], device: SelectableDevice) -> Outcome | None:
        """Say whether a device matches all of some expressions; None if that is not known yet."""
        outcome = Outcome(True)  # noqa: FBT003 - nothing is asked
        for text in expressions:
            if not self.read(text):
                return None
            one = self._compiled(text)
            content = one.content(device)
            found = one.known(content)
            if found is None:
                if not self.spend(one.steps):
                    return None
                found = one.answers[content] = one.answer(device)
                self._answer_count += 1
                self._release_others(one)
            if not found.matches:
                return found
        return outcome

    def keep(self, texts: Collection[str]) -> None:
        """Forget expressions that nothing asks for any more."""
        for text in [text for text in self._known if text not in texts]:
            self._release(self._known.pop(text))

    def _release_others(self, but: _Compiled) -> None:
        """Release those that are known for longest, where too much is kept."""
        if self._compiled_count <= _MOST_COMPILED and self._answer_count <= _MOST_ANSWERS:
            return
        for one in self._known.values():
            if one is not but and one.is_compiled:
                self._release(one)
                if self._compiled_count <= _MOST_COMPILED // 2 and (
                    self._answer_count <= _MOST_ANSWERS // 2
                ):
                    return

    def _release(self, one: _Compiled) -> None:
        self._compiled_count -= one.is_compiled
        self._answer_count -= len(one.answers)
        one.release()

    def _compiled(self, text: str) -> _Compiled:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = _Compiled(text)
        return found


def selectable(driver: str, device: Device) -> SelectableDevice:
    attributes = {
        _qualified(name, driver): value
        for name, it in device.attributes.items()
        if (value := _attribute_value(it)) is not None
    }
    capacity: dict[tuple[str, str], CelMap] = {}
    for name, amount in device.capacity.items():
        try:
            capacity[_qualified(name, driver)] = quantity(amount.value)
        except QuantityError:
            continue
    shares = device.allow_multiple_allocations
    of_names = [_hashable(it) for it in (*attributes.values(), *capacity.values())]
    schema = _schema(tuple(attributes), tuple(capacity))
    values = driver, shares, *of_names
    return SelectableDevice(driver, shares, attributes, capacity, schema, values)


@lru_cache(maxsize=4096)
def _schema(attributes: tuple[_Name, ...], capacity: tuple[_Name, ...]) -> DeviceSchema:
    return DeviceSchema(attributes, capacity)


def attribute_text(device: SelectableDevice, name: str) -> object:
    """Return the value of an attribute by its full name; None if the device has none."""
    domain, _, it = name.rpartition("/")
    value = device.attributes.get((domain, it))
    return None if value is None else (type(value).__name__, _hashable(value))


def _attribute_value(it: DeviceAttribute) -> CelValue | None:
    if it.version is not None:
        try:
            return semver(it.version)
        except ValueError:
            return None
    if it.flag is not None:
        return it.flag
    return it.string if it.string is not None else it.number


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, it = name.partition("/")
    return (domain, it) if slash else (driver, name)


def _hashable(value: CelValue) -> object:
    if isinstance(value, dict):
        return (*value.items(),)
    return (type(value).__name__, value)  # 1 and true are equal


def _is_opaque(text: str, bare: str) -> bool:
    """Say whether an expression may read any attribute, also one that it does not name."""
    if "\\" in text or _ANY.search(bare):
        return True
    if _LOOPS.search(bare):
        return len(_ACCESS.findall(bare)) < len(_DEVICE.findall(bare))
    return bool(_ANY_VALUE.search(bare))


def _cost_fault(steps: int) -> str:
    if steps <= _MOST_STEPS:
        return ""
    return f"costs too much: it may take more than {_MOST_STEPS} steps for one device"


def _length_fault(text: str) -> str:
    most = LOOPING_SELECTOR_CHARACTERS if _LOOPS.search(text) else SELECTOR_CHARACTERS
    if not text.strip():
        return "is empty"
    if len(text) <= most:
        return ""
    repeats = " that repeats a part of it" if most == LOOPING_SELECTOR_CHARACTERS else ""
    return f"has {len(text)} characters, but an expression{repeats} may have at most {most}"


def _first_line(it: object) -> str:
    text = str(it).strip().split("\n")[0]
    text = re.sub(r"^[A-Z_]+: (?:ERROR: )?", "", text)
    return re.sub(r" \[[A-Z_]+\]$", "", text)[:_ERROR_CHARACTERS]


@cache
def _environment() -> Any:
    """Return what all expressions are compiled in; imported only where there is one."""
    from cel_expr_python import cel  # noqa: PLC0415 - 16 MB that few commands need
    from cel_expr_python.ext import ext_bindings, ext_strings  # noqa: PLC0415 - likewise

    types = {
        "map": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
        "string": cel.Type.STRING,
        "int": cel.Type.INT,
        "bool": cel.Type.BOOL,
        "double": cel.Type.DOUBLE,
    }
    functions = [
        cel.FunctionDecl(
            it.name,
            [
                cel.Overload(
                    f"{it.name}_{'_'.join(it.takes)}",
                    return_type=types[it.returns],
                    parameters=[types[name] for name in it.takes],
                    is_member=it.is_member,
                    impl=it.call,
                )
            ],
        )
        for it in FUNCTIONS
    ]
    return cel.NewEnv(
        variables={"device": cel.Type.DYN},
        extensions=[ext_bindings.ExtBindings(), ext_strings.ExtStrings()],
        functions=functions,
    )


def _most_steps(text: str, bare: str, *, reads_all: bool) -> int:
    """Return how many steps of about a microsecond a text may take on one device, at most.

    *bare* is the text without its literals; with *reads_all* it may read all attributes. The
    library bounds only how often one evaluation repeats a part, and neither how long that part is
    nor how long a text becomes that is joined to itself again and again.
    """
    doubles = len(_REUSED.findall(bare)) if "+" in bare else 0
    growth = doubles + len(_LONGER_TEXTS.findall(bare))
    size = (len(text) // (growth + 1) + 1) ** (growth + 1)  # of the longest value
    items = bare.count(",") + 1
    if reads_all:
        items = max(items, _ATTRIBUTES)
    if doubles or "split" in bare:
        items = max(items, size)
    repetitions = 1
    for _ in _LOOPS.findall(bare):
        repetitions = min(repetitions * items, _MOST_REPETITIONS)
    steps = len(text) + (size // _COPIED if growth else 0)
    return _LEAST + repetitions * steps
