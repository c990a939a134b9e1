"""Comparisons of a measured time with a constant, as a plain function: modules in, faults out.

What an expression is follows from where its names come from: readings of a clock, differences of
readings, numbers. A name that ends like a number of seconds counts as measured where an assertion
compares it. The end of a wait may be a constant, if it is generous.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum, auto
from operator import add, mul, sub, truediv
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

MIN_WAIT_S: Final = 60  # what takes seconds here takes a minute on a slow machine under load

_CLOCKS: Final = frozenset(
    f"{name}{unit}"
    for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time")
    for unit in ("", "_ns")
)
_READS_CLOCK: Final = re.compile(
    r"monotonic\b|perf_counter|process_time|thread_time|\btime(?:_ns)?\(|cpu_s|slowdown"
)
_MAY_WAIT: Final = re.compile(
    r"timeout\b|\bwait(?:_for)?\(|select\("
    r"|^.*assert.*(?:_s|_ms|_ns|seconds|elapsed|duration)\b",
    re.MULTILINE,
)
_IMPORT: Final = re.compile(r"^from (\S+) import", re.MULTILINE)
_PROBES: Final = frozenset({"cpu_s", "slowdown", "slowdown_now"})  # of tests.support
_KEEPS: Final = frozenset({"abs", "float", "int", "max", "min", "round", "sorted", "sum"})
_SECONDS: Final = re.compile(r"(?:.*_)?(?:s|ms|ns|seconds|elapsed|duration)")
_PLANNED: Final = re.compile(r"clock|delay|due|grace|period|retry|timeout|wait")
_ORDER: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_WAITS: Final = {"timeout": 0, "wait_for": 1, "wait": 0, "select": 3}  # the place of the seconds

_ROUNDS: Final = 2  # a name may be made of one that comes after it
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEARNED: Final = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.comprehension),
    *(ast.Return, ast.Call),
)
_INNER: Final = (
    (ast.UnaryOp, "operand"),
    (ast.Await | ast.Subscript | ast.NamedExpr | ast.Starred, "value"),
    (ast.GeneratorExp | ast.ListComp | ast.SetComp, "elt"),
)
_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = MappingProxyType(
    {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv}
)
_ADVICE: Final = (
    "bound a ratio to something measured in the same process (tests.support.cpu_time), count "
    "(tests.support.instruction_count), or move it to the benchmarks"
)
_PATIENCE: Final = (
    f"a condition ends a wait, so let it last {MIN_WAIT_S} s or more, or expect its TimeoutError"
)


class _Kind(Enum):
    NUMBER = auto()
    READING = auto()  # of a clock
    END = auto()  # a reading and what may pass after it
    PASSED = auto()  # between two readings


_Placed: TypeAlias = tuple[tuple[str, ...], ast.AST]  # a node, after the functions that it is in


class _Module(NamedTuple):
    """What is known about names of a module: those of a function come after its name."""

    tree: ast.Module
    nodes: list[_Placed]  # that say something about names
    catches: list[ast.With | ast.AsyncWith | ast.Try]
    kinds: dict[str, _Kind]
    numbers: dict[str, float]
    parameters: dict[str, list[str]]  # by function
    variables: AbstractSet[str]  # that are assigned more than once
    has_virtual_clock: bool


def clock_faults(modules: Mapping[str, str]) -> list[str]:
    """Name each comparison of a measured time with a constant, and each impatient wait.

    *modules* are texts by path. What one imports from another is followed.
    """
    imported = {path: _sources(text) for path, text in modules.items()}
    reading = {path for path, text in modules.items() if _READS_CLOCK.search(text)}
    using = {path for path, sources in imported.items() if sources & reading}
    waiting = {path for path, text in modules.items() if _MAY_WAIT.search(text)}
    checked = reading | using | waiting
    sources = {it for path in checked for it in imported[path]} & modules.keys()
    known = {path: _parsed(modules[path]) for path in sorted(checked | sources)}
    for _ in range(2):  # what is imported, and what is made of it
        for module in known.values():
            _import_names(module, known)
            for _ in range(_ROUNDS):
                for scope, node in module.nodes:
                    _learn(_Reader(module, scope), node)
    return [
        f"{path}:{line}: {fault}"
        for path, module in known.items()
        if path in checked
        for line, fault in sorted({*_comparisons(module), *_impatient_waits(module)})
    ]


def _sources(text: str) -> set[str]:
    """Return the modules from which names are imported."""
    return {it.replace(".", "/") + ".py" for it in _IMPORT.findall(text)}


def _parsed(text: str) -> _Module:
    tree = ast.parse(text)
    nodes = [*_nodes(tree, ())]
    parameters = {
        node.name: [
            it.arg for it in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        ]
        for _, node in nodes
        if isinstance(node, _DEFINITIONS)
    }
    targets = Counter(
        _key(node, scope)
        for scope, node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    known = {it for it, count in targets.items() if count > 1}
    learned = [it for it in nodes if isinstance(it[1], _LEARNED)]
    is_virtual = "VirtualClock" in text or "clock.advance(" in text
    catches = [it for _, it in nodes if isinstance(it, ast.With | ast.AsyncWith | ast.Try)]
    return _Module(tree, learned, catches, {}, {}, parameters, known, is_virtual)


def _nodes(node: ast.AST, scope: tuple[str, ...]) -> Iterator[_Placed]:
    """Yield all nodes below, each with the functions that it is in."""
    for child in ast.iter_child_nodes(node):
        yield scope, child
        yield from _nodes(child, (*scope, child.name) if isinstance(child, _DEFINITIONS) else scope)


def _key(node: ast.expr, scope: tuple[str, ...]) -> str:
    """Return the name under which a target of an assignment is known."""
    while isinstance(node, ast.Subscript | ast.Starred):
        node = node.value
    if isinstance(node, ast.Attribute):
        return "*." + node.attr
    return ".".join((*scope[-1:], node.id)) if isinstance(node, ast.Name) else ""


def _import_names(module: _Module, known: Mapping[str, _Module]) -> None:
    for node in module.tree.body:
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        source = known.get(node.module.replace(".", "/") + ".py")
        for alias in node.names:
            name = alias.asname or alias.name
            if node.module == "time" and alias.name in _CLOCKS:
                module.kinds[f"{name}()"] = _Kind.READING
            elif source is not None:
                for end in ("", "()"):
                    if kind := source.kinds.get(alias.name + end):
                        module.kinds[name + end] = kind
                if alias.name in source.numbers:
                    module.numbers[name] = source.numbers[alias.name]


class _Reader:
    """Reads expressions of a function."""

    def __init__(self, module: _Module, scope: tuple[str, ...]) -> None:
        self.module = module
        self.scope = scope

    def learn(self, target: ast.expr, value: ast.expr | None) -> None:
        """Note what a name or an attribute is given."""
        if isinstance(target, ast.Tuple):
            values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
            for one, its in zip(target.elts, values, strict=False):
                self.learn(one, its)
            return
        name = _key(target, self.scope)
        self.note(name, self.kind(value), value)
        if isinstance(value, ast.Lambda):
            self.note(name + "()", self.kind(value.body), None)

    def note(self, name: str, kind: _Kind | None, value: ast.expr | None) -> None:
        """Note what a name is; a variable that was a number at first is none."""
        if kind is _Kind.NUMBER:
            is_constant = not name.startswith("*.") and name not in self.module.variables
            if is_constant and self.module.kinds.setdefault(name, kind) is kind:
                number = self.number(value)
                if number is not None:
                    self.module.numbers[name] = number
        elif kind is not None:
            self.module.kinds[name] = kind

    def kind(self, node: ast.expr | None) -> _Kind | None:
        """Return what an expression is, if that is known."""
        if isinstance(node, ast.Constant):
            is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
            return _Kind.NUMBER if is_number else None
        if isinstance(node, ast.Name | ast.Attribute):
            return _Kind.PASSED if _PROBES & {_last(node)} else self._named(node)
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.BinOp):
            return _combined(node.op, self.kind(node.left), self.kind(node.right))
        if isinstance(node, ast.List | ast.Tuple):
            return self._any(node.elts)
        if isinstance(node, ast.IfExp):
            return self._any([node.body, node.orelse])
        return next(
            (self.kind(getattr(node, part)) for type_, part in _INNER if isinstance(node, type_)),
            None,
        )

    def number(self, node: ast.expr | None) -> float | None:
        """Return the value of a constant."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int | float) else None
        if isinstance(node, ast.Name):
            keys = [*(f"{it}.{node.id}" for it in reversed(self.scope)), node.id]
            return next((self.module.numbers[it] for it in keys if it in self.module.numbers), None)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right = self.number(node.left), self.number(node.right)
            if left is not None and right is not None:
                return _ARITHMETIC[type(node.op)](left, right)
        return None

    def _any(self, nodes: Sequence[ast.expr]) -> _Kind | None:
        kinds = [kind for node in nodes if (kind := self.kind(node))]
        passed = [kind for kind in kinds if kind is not _Kind.NUMBER]
        return passed[0] if passed else kinds[0] if len(kinds) == len(nodes) and kinds else None

    def _called(self, node: ast.Call) -> _Kind | None:
        name = _last(node.func)
        if isinstance(node.func, ast.Attribute) and name in _CLOCKS:
            owner = ast.unparse(node.func.value)
            return _Kind.READING if owner == "time" or "loop" in owner else None
        if isinstance(node.func, ast.Name) and name in _KEEPS:
            return self._any(node.args)
        return _Kind.PASSED if name in _PROBES else self._named(node.func, "()")

    def _named(self, node: ast.expr, end: str = "") -> _Kind | None:
        name = _last(node) + end
        keys = [*(f"{it}.{name}" for it in reversed(self.scope)), name]
        if isinstance(node, ast.Attribute):
            keys = ["*." + name, name] if end else ["*." + name]
        return next((self.module.kinds[it] for it in keys if it in self.module.kinds), None)


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _combined(op: ast.operator, left: _Kind | None, right: _Kind | None) -> _Kind | None:
    both = {left, right}
    if both == {_Kind.NUMBER}:
        return _Kind.NUMBER
    if isinstance(op, ast.Sub) and both & {_Kind.READING, _Kind.END}:
        return left if right in (_Kind.NUMBER, _Kind.PASSED) else _Kind.PASSED
    if isinstance(op, ast.Add) and _Kind.READING in both:
        return _Kind.END
    if isinstance(op, ast.Div):
        return None if right is _Kind.PASSED else left
    return _Kind.PASSED if _Kind.PASSED in both else None


def _learn(reader: _Reader, node: ast.AST) -> None:
    """Note what a statement or a call says about names."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            reader.learn(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        reader.learn(node.target, node.value)
    elif isinstance(node, ast.For | ast.comprehension):
        reader.learn(node.target, node.iter)
    elif isinstance(node, ast.Return) and reader.scope:
        reader.note(reader.scope[-1] + "()", reader.kind(node.value), None)
    elif isinstance(node, ast.Call):
        _learn_arguments(reader, node)


def _learn_arguments(reader: _Reader, call: ast.Call) -> None:
    function = _last(call.func)
    if function == "append" and isinstance(call.func, ast.Attribute):
        reader.learn(call.func.value, call.args[0])
    names = [it for it in reader.module.parameters.get(function, ()) if it not in ("self", "cls")]
    given = dict(zip(names, call.args, strict=False))
    given |= {it.arg: it.value for it in call.keywords if it.arg in names}
    inner = _Reader(reader.module, (function,))
    for name, value in given.items():
        inner.note(f"{function}.{name}", reader.kind(value), value)
        body = value.body if isinstance(value, ast.Lambda) else ast.Call(value, [], [])
        inner.note(f"{function}.{name}()", reader.kind(body), None)


class _Place(NamedTuple):
    """Where an expression is."""

    scope: tuple[str, ...] = ()
    is_ahead: bool = False  # it decides whether a loop goes on
    is_in_loop: bool = False
    is_asserted: bool = False


def _comparisons(module: _Module) -> Iterator[tuple[int, str]]:
    for place, node in _compared(module.tree, _Place()):
        reader = _Reader(module, place.scope)
        sides = [node.left, *node.comparators]
        for op, *pair in zip(node.ops, sides, sides[1:], strict=False):
            if place.is_ahead or not isinstance(op, _ORDER):
                continue
            upwards = pair if isinstance(op, ast.Lt | ast.LtE) else pair[::-1]
            # An assertion that something took at least so long holds on a slow machine, too.
            orders = [upwards] if place.is_asserted else [upwards, upwards[::-1]]
            if any(_is_fault(reader, place, *it) for it in orders):
                yield (
                    node.lineno,
                    f"`{ast.unparse(node)}` compares a time with a constant: {_ADVICE}",
                )


def _compared(node: ast.AST, place: _Place) -> Iterator[tuple[_Place, ast.Compare]]:
    """Yield all comparisons below."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            inner = place
            if isinstance(node, _DEFINITIONS):
                inner = _Place((*place.scope, node.name))
            elif isinstance(node, ast.While | ast.For | ast.AsyncFor):
                inner = place._replace(is_ahead=field == "test", is_in_loop=True)
            elif isinstance(node, ast.Assert):
                inner = place._replace(is_asserted=True)
            if isinstance(child, ast.Compare):
                yield inner, child
            yield from _compared(child, inner)


def _is_fault(reader: _Reader, place: _Place, measured: ast.expr, bound: ast.expr) -> bool:
    kind, its = reader.kind(measured), reader.kind(bound)
    if kind is _Kind.READING and its is _Kind.END:
        return not place.is_in_loop
    if its is not _Kind.NUMBER or (number := reader.number(bound)) == 0:
        return False
    if kind in (_Kind.PASSED, _Kind.READING):
        return not (place.is_in_loop and number is not None and number >= MIN_WAIT_S)
    if kind is not None or not place.is_asserted or reader.module.has_virtual_clock:
        return False
    return _is_named_like_a_time(measured)


def _is_named_like_a_time(node: ast.expr) -> bool:
    """Say whether an expression of unknown origin is named like a measured time."""
    name = _last(node)
    if not name or name.isupper():
        return False
    return bool(_SECONDS.fullmatch(name)) and not _PLANNED.search(ast.unparse(node))


def _impatient_waits(module: _Module) -> Iterator[tuple[int, str]]:
    expected = {
        id(inner)
        for node in module.catches
        if any("TimeoutError" in ast.unparse(it) for it in _expectations(node))
        for inner in ast.walk(node)
    }
    for scope, node in module.nodes:
        if isinstance(node, ast.Call) and id(node) not in expected:
            for given in _seconds(node):
                number = _Reader(module, scope).number(given)
                if number is not None and 0 < number < MIN_WAIT_S:
                    yield node.lineno, f"`{ast.unparse(node)}` waits {number:g} s: {_PATIENCE}"


def _expectations(node: ast.With | ast.AsyncWith | ast.Try) -> Iterator[ast.expr]:
    """Yield the errors that a block catches."""
    if isinstance(node, ast.Try):
        yield from (it.type for it in node.handlers if it.type is not None)
    else:
        yield from (it.context_expr for it in node.items)


def _seconds(call: ast.Call) -> Iterator[ast.expr]:
    """Yield what says how long a call waits at most."""
    yield from (it.value for it in call.keywords if it.arg == "timeout")
    place = _WAITS.get(_last(call.func))
    if place is not None and len(call.args) > place:
        yield call.args[place]
