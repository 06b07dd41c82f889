"""What a source file declares and imports, read from its syntax tree. Broken syntax gives what
could be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctx_pipeline.sources.code.grammars import Grammar, language_of

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 16
"""Symbols nested deeper stay in the text of the one around them."""
MAX_SYMBOLS = 2_000
"""Of one file; the rest is counted."""
MAX_IMPORTS = 500
MAX_NODES = 400_000
"""Nodes of a tree that are looked at for imports: more than a file of the largest size has, unless
it is hostile."""
MAX_COMMENTS = 200
"""Of one block above a declaration or at the head of a file."""
MAX_NAME_CHARS = 200
MAX_SIGNATURE_CHARS = 300

_BEFORE = frozenset(
    ("comment", "line_comment", "block_comment", "doc_comment", "decorator", "attribute_item")
)
_COMMENTS = _BEFORE - {"decorator", "attribute_item"}
_FUNCTION_VALUES = frozenset(
    ("arrow_function", "function_expression", "generator_function", "class")
)
_VALUED = {
    "variable_declarator": ("name", "value"),
    "field_definition": ("property", "value"),
    "public_field_definition": ("name", "value"),
    "assignment_expression": ("left", "right"),
}
_BODY_NEEDED = frozenset(
    ("struct_specifier", "union_specifier", "enum_specifier", "class_specifier", "mod_item")
)
"""Without a body they only mention what is declared elsewhere."""
_NAMED = frozenset(
    (
        "identifier",
        "field_identifier",
        "type_identifier",
        "qualified_identifier",
        "destructor_name",
        "operator_name",
    )
)
_SPACES = re.compile(r"\s+")
_LICENCE = re.compile(r"copyright|licen[cs]e|spdx|版权|许可证", re.IGNORECASE)
_COMMENT_MARK = re.compile(
    r"^[ \t]*(?:/\*+|\*+/|//[/!]?|#!?|--|\*|;)[ \t]?|[ \t]*\*+/[ \t]*$", re.MULTILINE
)
_QUOTES = "\"'`"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A class, function or other declaration. Lines count from 1 and include its comments and
    decorators.
    """

    name: str
    """Qualified by its containers, dots between; the second of one name in a file ends in `#2`."""
    kind: str
    signature: str
    line_start: int
    line_end: int
    head_line: int
    """Line of the declaration itself."""
    parent: int | None
    """Position of its container among the file's symbols."""


@dataclass(frozen=True, slots=True)
class Import:
    """What a file asks for, in the words of its language."""

    target: str
    names: tuple[str, ...] = ()
    """Python: the names taken from it."""


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """A file's declarations in the order of their lines."""

    symbols: tuple[Symbol, ...]
    imports: tuple[Import, ...]
    doc: str
    """Docstring or first comment that is no licence; one text without comment marks."""
    doc_lines: tuple[int, int] | None
    import_lines: frozenset[int]
    broken: bool
    dropped: int
    """Symbols beyond `MAX_SYMBOLS`."""


def parse_code(text: str, grammar: Grammar) -> ParsedFile:
    """Parse a file.

    Raises:
        GrammarMissing: the language's package is not installed.
    """
    # First: it says what to install where the parser itself is missing.
    language = language_of(grammar)
    from tree_sitter import Parser

    root = Parser(language).parse(text.encode("utf-8", "replace")).root_node
    collector = _Collector(grammar)
    collector.visit(root, _Context())
    imports, import_lines = _imports(root, grammar)
    doc, doc_lines = _file_doc(root, grammar)
    return ParsedFile(
        symbols=tuple(collector.symbols),
        imports=imports,
        doc=doc,
        doc_lines=doc_lines,
        import_lines=import_lines,
        broken=root.has_error,
        dropped=collector.dropped,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """Where a node stands that is looked into."""

    prefix: str = ""
    parent: int | None = None
    outer: Node | None = None
    """The outermost node that wraps it and nothing else, and so belongs to its one symbol."""
    above: Sequence[Node] = ()
    """What stands before `outer`."""
    depth: int = 0


class _Collector:
    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.symbols: list[Symbol] = []
        self.dropped = 0
        self.taken: dict[str, int] = {}

    def visit(self, node: Node, context: _Context) -> None:
        """Collect the symbols among the children of a node."""
        siblings = node.named_children
        places = [at for at, child in enumerate(siblings) if self._leads_on(child)]
        wraps = len(places) == 1 and node.type in _WRAPPERS
        for at in places:
            child = siblings[at]
            outer = (context.outer or node) if wraps else None
            above = context.above if wraps else siblings[max(0, at - MAX_COMMENTS) : at]
            inner = _Context(
                prefix=context.prefix,
                parent=context.parent,
                outer=outer,
                above=above,
                depth=context.depth + 1,
            )
            if (kind := self.grammar.symbols.get(child.type)) and (name := _name(child)):
                self._add(child, kind, f"{context.prefix}{name}", inner)
            elif child.type in self.grammar.scopes and context.depth < MAX_DEPTH:
                self.visit(child, inner)

    def _leads_on(self, node: Node) -> bool:
        return node.type in self.grammar.symbols or node.type in self.grammar.scopes

    def _add(self, node: Node, kind: str, name: str, context: _Context) -> None:
        if len(self.symbols) >= MAX_SYMBOLS:
            self.dropped += 1
            return
        name = name[:MAX_NAME_CHARS]
        own = _impl_name(node, name) if kind == "impl" else name
        self.taken[own] = self.taken.get(own, 0) + 1
        unique = own if self.taken[own] == 1 else f"{own}#{self.taken[own]}"
        whole = context.outer or node
        position = len(self.symbols)
        around = None if context.parent is None else self.symbols[context.parent].kind
        self.symbols.append(
            Symbol(
                name=unique,
                kind="method" if kind == "function" and around not in _NAMESPACES else kind,
                signature=_signature(node, whole),
                line_start=_first_line(whole, context.above),
                line_end=_last_line(whole),
                head_line=node.start_point.row + 1,
                parent=context.parent,
            )
        )
        body = node.child_by_field_name("body")
        if node.type in self.grammar.containers and body is not None and context.depth < MAX_DEPTH:
            self.visit(body, _Context(prefix=f"{name}.", parent=position, depth=context.depth))


_NAMESPACES = frozenset((None, "namespace", "module"))
_WRAPPERS = frozenset((
    "decorated_definition", "export_statement", "lexical_declaration", "variable_declaration",
    "expression_statement",
    "template_declaration", "type_declaration", "ambient_declaration", "statement",
))  # fmt: skip
"""Nodes around one declaration that are part of it."""


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _one_line(text: str, limit: int) -> str:
    line = _SPACES.sub(" ", text[: limit * 4]).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _name(node: Node) -> str | None:
    """Return what a declaration calls itself; None where it is no symbol after all."""
    if node.type in _VALUED:
        left, right = (node.child_by_field_name(part) for part in _VALUED[node.type])
        return (
            _short(left)
            if left is not None and right is not None and right.type in _FUNCTION_VALUES
            else None
        )
    if node.type in _BODY_NEEDED and node.child_by_field_name("body") is None:
        return None
    if node.type in _FUNCTION_VALUES and node.child_by_field_name("name") is None:
        return (
            "default"
            if node.parent is not None and node.parent.type == "export_statement"
            else None
        )
    if node.type == "impl_item":
        target = node.child_by_field_name("type")
        return _short(target).split("<", 1)[0] if target is not None else None
    if node.type.startswith("create_"):
        reference = next(
            (child for child in node.named_children if child.type == "object_reference"), None
        )
        named = reference if reference is not None else node.child_by_field_name("name")
        return _short(named) if named is not None else None
    receiver = node.child_by_field_name("receiver")
    own = node.child_by_field_name("name")
    if own is None:
        own = _declared(node)
    if own is None:
        return None
    return _short(own) if receiver is None else f"{_receiver(receiver)}.{_short(own)}"


def _impl_name(node: Node, name: str) -> str:
    """Return `impl Trait for Type`; its members are named by the type alone."""
    trait = node.child_by_field_name("trait")
    return f"impl {name}" if trait is None else f"impl {_short(trait)} for {name}"


def _short(node: Node) -> str:
    return _SPACES.sub(" ", _text(node)).strip().strip(_QUOTES)[:MAX_NAME_CHARS].replace("::", ".")


def _declared(node: Node) -> Node | None:
    """Follow C declarators (`*f(int)`, `T::m()`) to the name in them."""
    found = node.child_by_field_name("declarator")
    for _ in range(MAX_DEPTH):
        if found is None or found.type in _NAMED:
            return found
        inner = found.child_by_field_name("declarator")
        if inner is None:
            # A reference declarator holds its inner part without a field.
            inner = next(
                (part for part in found.named_children if part.type.endswith("declarator")), None
            )
        found = inner
    return None


def _receiver(node: Node) -> str:
    """Return the type of a Go receiver: `(s *Shop[T])` gives `Shop`."""
    return _text(node).strip("() \n").split("[", 1)[0].split(" ")[-1].lstrip("*")[:MAX_NAME_CHARS]


def _signature(node: Node, whole: Node) -> str:
    """Return the declaration up to its body on one line, decorators left out."""
    start = node.start_byte if whole.type == "decorated_definition" else whole.start_byte
    body = node.child_by_field_name("body") or node.child_by_field_name("accessors")
    for part in ("value", "right", "type"):
        value = node.child_by_field_name(part)
        if body is None and value is not None:
            body = value.child_by_field_name("body") or next(
                (child for child in value.named_children if child.type.endswith("_list")), None
            )
    source = (whole.text or b"")[start - whole.start_byte :]
    if body is not None and body.start_byte > start:
        source = source[: body.start_byte - start]
    else:
        source = source.split(b"\n", 1)[0]
    text = _one_line(source.decode("utf-8", "replace"), MAX_SIGNATURE_CHARS)
    return text.rstrip("{:").rstrip().removesuffix("=>").rstrip()


def _end_row(node: Node) -> int:
    """Return the row of the last character; some comments end at the start of the next line."""
    end = node.end_point
    return end.row - 1 if end.column == 0 and end.row > node.start_point.row else end.row


def _last_line(node: Node) -> int:
    return _end_row(node) + 1


def _first_line(node: Node, above: Sequence[Node]) -> int:
    """Return the first line of a declaration with the comments and attributes that stand right
    above it.
    """
    row = node.start_point.row
    for at in range(len(above) - 1, -1, -1):
        comment = above[at]
        if comment.type not in _BEFORE or _end_row(comment) not in (row - 1, row):
            break
        before = above[at - 1] if at else None
        if (
            before is not None
            and before.type not in _BEFORE
            and _end_row(before) == comment.start_point.row
        ):
            break  # it ends the line of another statement
        row = comment.start_point.row
    return row + 1


def _imports(root: Node, grammar: Grammar) -> tuple[tuple[Import, ...], frozenset[int]]:
    """Return what a file asks for and the lines of whole statements that do."""
    found: dict[Import, None] = {}
    lines: set[int] = set()
    # A walk of our own: queries take time that grows with the square of a broken file's size.
    pending = [*reversed(root.named_children)]
    for _ in range(MAX_NODES):
        if not pending or len(found) >= MAX_IMPORTS:
            break
        node = pending.pop()
        if node.type in grammar.imports:
            asked = dict.fromkeys(_import(node))
            found.update(asked)
            if node.type != "call_expression" and (asked or node.type == "future_import_statement"):
                lines.update(range(node.start_point.row + 1, _last_line(node) + 1))
        if grammar.import_scopes is None or node.type in grammar.import_scopes:
            pending.extend(reversed(node.named_children))
    return tuple(found), frozenset(lines)


def _import(node: Node) -> Iterator[Import]:
    match node.type:
        case "import_statement" if (source := _script_source(node)) is None:
            for name in node.children_by_field_name("name"):
                yield Import(_text(name.child_by_field_name("name") or name)[:MAX_NAME_CHARS])
        case "import_from_statement":
            module = node.child_by_field_name("module_name")
            names = [
                name.child_by_field_name("name") or name
                for name in node.children_by_field_name("name")
            ]
            taken = tuple(_text(name)[:MAX_NAME_CHARS] for name in names) or ("*",)
            if module is not None:
                yield Import(_SPACES.sub("", _text(module))[:MAX_NAME_CHARS], taken)
        case "future_import_statement":
            return
        case _:
            source = _asked(node)
            text = (
                ""
                if source is None
                else _one_line(_text(source), MAX_SIGNATURE_CHARS).strip(_QUOTES)
            )
            text = text.removeprefix("using ").removesuffix(";")
            if text:
                yield Import(text)


def _script_source(node: Node) -> Node | None:
    source = node.child_by_field_name("source")
    if source is None:  # import x = require("y")
        clause = next(
            (child for child in node.named_children if child.type == "import_require_clause"), None
        )
        source = clause.child_by_field_name("source") if clause is not None else None
    return source


_CALLS = {
    "call_expression": ("function", ("require", "import")),
    "call": ("method", ("require", "require_relative")),
}


def _asked(node: Node) -> Node | None:
    """Return the node that names what is asked for; None where nothing is."""
    kind = node.type
    if kind in _CALLS:
        part, names = _CALLS[kind]
        called, arguments = node.child_by_field_name(part), node.child_by_field_name("arguments")
        if called is None or arguments is None or _text(called) not in names:
            return None
        return next(
            (child for child in arguments.named_children[:1] if child.type == "string"), None
        )
    if kind == "command":
        called = node.child_by_field_name("name")
        return (
            node.child_by_field_name("argument")
            if called is not None and _text(called) in ("source", ".")
            else None
        )
    if kind == "mod_item":
        return (
            node.child_by_field_name("name") if node.child_by_field_name("body") is None else None
        )
    if kind in ("import_statement", "export_statement"):
        return _script_source(node)
    if kind == "using_directive":
        return node
    asked = node.child_by_field_name("path") or node.child_by_field_name("argument")
    return asked if asked is not None else next(iter(node.named_children), None)


def _file_doc(root: Node, grammar: Grammar) -> tuple[str, tuple[int, int] | None]:
    """Return the file's docstring, or its first comment that is no licence."""
    nodes = root.named_children[: 2 * MAX_COMMENTS]
    at = 0
    while at < len(nodes):
        node = nodes[at]
        if node.type in _COMMENTS:
            end = _comment_end(nodes, at)
            block = nodes[at:end]
            text = _plain(
                b"\n".join((part.text or b"").rstrip(b"\n") for part in block).decode(
                    "utf-8", "replace"
                )
            )
            if text and end < len(nodes) and _belongs_to(block[-1], nodes[end], grammar):
                break
            if text and not _LICENCE.search(text) and not _text(node).startswith("#!"):
                return text, (node.start_point.row + 1, _last_line(block[-1]))
            at = end
        elif (
            node.type == "expression_statement"
            and node.named_children
            and node.named_children[0].type == "string"
        ):
            content = [
                part
                for part in node.named_children[0].named_children
                if part.type == "string_content"
            ]
            return "".join(_text(part) for part in content).strip(), (
                node.start_point.row + 1,
                _last_line(node),
            )
        elif node.type == "php_tag":
            at += 1
        else:
            break
    return "", None


def _belongs_to(comment: Node, below: Node, grammar: Grammar) -> bool:
    """Say whether a comment stands right above a declaration, which then shows it."""
    near = below.start_point.row <= _end_row(comment) + 1
    return near and (below.type in grammar.symbols or below.type in grammar.scopes)


def _comment_end(nodes: Sequence[Node], start: int) -> int:
    """Return the position after the comments that follow one another line by line."""
    end = start + 1
    for node in nodes[end:]:
        if node.type not in _COMMENTS or node.start_point.row != _end_row(nodes[end - 1]) + 1:
            break
        end += 1
    return end


def _plain(comment: str) -> str:
    return "\n".join(line.rstrip() for line in _COMMENT_MARK.sub("", comment).split("\n")).strip()
