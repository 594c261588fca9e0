"""Loads modules so that they count their steps (:mod:`.counting`) when the code in them runs."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from tests.linear.counting import Steps, is_instrumented

_DECODES = re.compile(r"_?(?:decode|parse|unpack|unseal|loads)(?:_|$)|_?from_(?:json|bytes|toml)$")
_READS = re.compile(r"_?read(?:_|$)")
_DATA = re.compile(r"\b(?:bytes|Bytes|memoryview|\w*Frame)\b")


def is_decoder(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function reads input from outside, by its name and its arguments: a ``read`` is a
    decoder only if it gets bytes or a frame."""
    if _READS.match(function.name):
        types = [ast.unparse(arg.annotation) for arg in function.args.args if arg.annotation]
        return any(map(_DATA.search, types))
    return _DECODES.match(function.name) is not None


COMPILED = "store.message.compiled"

_PLAIN = frozenset(("super", "locals", "globals", "vars", "dir", "eval", "exec"))
"""Functions that look at the frame of their caller, so they are called as they are."""


def install(steps: Steps) -> None:
    """Modules that are imported from now on count their steps in ``steps``. Compiled loops have
    twins in Python, which are counted."""
    loaded = [name for name in sys.modules if is_instrumented(name)]
    if loaded:
        raise RuntimeError(f"already imported without counting: {loaded}")
    sys.modules[COMPILED] = None  # type: ignore[assignment]  # so its import fails
    builtins.__steps__ = steps  # type: ignore[attr-defined]  # instrumented code calls it
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not is_instrumented(fullname):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_data(self.path), self.path)
        counted = ast.fix_missing_locations(_Instrument(fullname).visit(tree))
        return compile(counted, self.path, "exec", dont_inherit=True)


def _step(method: str, *args: ast.expr) -> ast.Call:
    steps = ast.Name("__steps__", ast.Load())
    return ast.Call(ast.Attribute(steps, method, ast.Load()), list(args), [])


class _Instrument(ast.NodeTransformer):
    def __init__(self, module: str) -> None:
        self._scope = [module]

    # --- scopes, and annotations, which nobody runs

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._scope.append(node.name)
        self.generic_visit(node)
        self._scope.pop()
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        self._scope.append(node.name)
        node.args = self.visit(node.args)
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        docstring = [] if ast.get_docstring(node, clean=False) is None else node.body[:1]
        body: list[ast.stmt] = []
        for statement in node.body[len(docstring) :]:
            visited = self.visit(statement)
            body += visited if isinstance(visited, list) else [visited]
        if is_decoder(node):
            body.insert(0, ast.Expr(_step("enter", ast.Constant(".".join(self._scope)))))
        node.body = [*docstring, *body]
        self._scope.pop()
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast calls it so

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.target = self.visit(node.target)
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    # --- what takes steps

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _PLAIN:
            return node
        counted = _step("call", node.func, *node.args)
        counted.keywords = node.keywords
        return counted

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return _step("made", node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        return _step("made", node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        node.value = self.visit(node.value)  # the format itself must not change
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        copies = isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Slice)
        return _step("made", node) if copies else node

    def _display(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        elements = node.elts
        copies = isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and any(
            isinstance(element, ast.Starred) for element in elements
        )
        return _step("made", node) if copies else node

    visit_List = visit_Tuple = visit_Set = _display  # noqa: N815 - names of ast.NodeVisitor

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        return _step("made", node) if None in node.keys else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) > 1:
            return node
        (operator,), (right,) = node.ops, node.comparators
        match operator:
            case ast.Eq():
                return _step("equals", node.left, right)
            case ast.NotEq():
                return _step("differs", node.left, right)
            case ast.In():
                return _step("contains", right, node.left)
            case ast.NotIn():
                return ast.UnaryOp(ast.Not(), _step("contains", right, node.left))
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.iter = _step("each", node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        if not node.is_async:
            node.iter = _step("each", node.iter)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.test = _step("tick", node.test)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        node.value = _step("made", node.value)
        return [node, ast.Expr(_step("grown", _loaded(node.target)))]

    def visit_Delete(self, node: ast.Delete) -> Any:
        self.generic_visit(node)
        cut = [
            ast.Expr(_step("cut", target.value))
            for target in node.targets
            if isinstance(target, ast.Subscript)
        ]
        return [*cut, node]


def _loaded(target: ast.expr) -> ast.expr:
    """The expression that reads the target of an assignment."""
    return ast.parse(ast.unparse(target), mode="eval").body
