"""Chat messages to tokens, by the Jinja template that the model ships.

A template's own markup becomes control tokens; what users wrote never does, whatever it spells and however the template
joins, trims or cuts it. To keep the two apart, the characters that control tokens are made of are replaced in user text
by private ones before rendering. A control token found in the rendered text is then the template's own; everything
between such tokens has its characters put back and is encoded as plain text, in one piece.

One case is the template's own doing: where it writes a token's punctuation itself around a word of the user's, as in
`<|{{ name }}|>`, that word chooses among the tokens of this form.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

from les._core import Tokenizer
from les.errors import InvalidArgumentError

MAX_CHARACTERS = 8 << 20
PRIVATE_FIRST, PRIVATE_LAST = 0xF0000, 0xFFFFD  # the private-use plane in which stand-ins are chosen
UNTOUCHED = set('"\\')  # JSON escapes these; a stand-in would not be escaped
ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_ .-]{0,63}")

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

Message = Mapping[str, Any]


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Sandboxed; ranges are bounded so that a template cannot run on."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _Generation])
        self.filters["tojson"] = _tojson
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda pattern: datetime.datetime.now().strftime(pattern)


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what a model is trained on; for a prompt it is nothing."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@dataclass(frozen=True)
class Rendered:
    """A rendered chat: pieces of (text, is_control), the template's control tokens and the text between them."""

    pieces: tuple[tuple[str, bool], ...]

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


class ChatTemplate:
    """One model's template with its tokenizer's control tokens. Reusable; one thread at a time."""

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        self.source, self.tokenizer = source, tokenizer
        try:
            self.template = _Environment().from_string(source)
        except jinja2.TemplateError as error:
            raise InvalidArgumentError(f"the chat template cannot be parsed: {error}") from error
        special = [tokenizer.id_to_token(i) for i in range(tokenizer.n_vocab) if tokenizer.is_control(i)]
        special = sorted((t for t in special if t), key=len, reverse=True)
        self.special = re.compile("|".join(map(re.escape, special))) if special else None
        self.risky = "".join(sorted(_risky_characters(special)))
        # What the template itself looks for in messages stays as it is, where that cannot become part of a token.
        words = sorted((w for w in _template_words(source) if _is_harmless(w, special)), key=len, reverse=True)
        self.kept = re.compile("(" + "|".join(map(re.escape, words)) + ")") if words else None
        # Some vocabularies let a control token swallow the white space behind it.
        self.strips = bool(special) and len(tokenizer.encode(special[-1] + "\n", markup=True)) == 1

    def _disguise(self, value: Any, table: dict[int, int]) -> Any:
        """A copy of value whose strings cannot take part in a control token."""
        if isinstance(value, str):
            if self.kept is None:
                return value.translate(table)
            return "".join(part if i % 2 else part.translate(table) for i, part in enumerate(self.kept.split(value)))
        if isinstance(value, Mapping):
            return {self._disguise(k, table): self._disguise(v, table) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._disguise(v, table) for v in value]
        return value

    def _disguise_message(self, message: Message, table: dict[int, int]) -> Any:
        """The role is the program's word, checked already, and part of the markup in many templates."""
        return {**self._disguise(message, table), "role": message["role"]}

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> Rendered:
        """messages: dicts with role and content. variables: whatever the template reads (enable_thinking, ...).

        Raises InvalidArgumentError with the template's own words when it refuses the messages.
        """
        check_messages(messages)
        table = _stand_ins(self.risky, [messages, tools, variables])
        tokenizer = self.tokenizer
        names = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
        context: dict[str, Any] = {k: tokenizer.id_to_token(v) if v is not None else "" for k, v in names.items()}
        context.update({name: self._disguise(value, table) for name, value in variables.items()})
        parts: list[str] = []
        size = 0
        try:
            stream = self.template.generate(
                messages=[self._disguise_message(m, table) for m in messages],
                tools=self._disguise(tools, table),
                add_generation_prompt=add_generation_prompt,
                **context,
            )
            for part in stream:
                size += len(part)
                if size > MAX_CHARACTERS:
                    raise InvalidArgumentError(f"the chat template writes more than {MAX_CHARACTERS} characters")
                parts.append(part)
        except InvalidArgumentError:
            raise
        except Exception as error:  # a template is a program: it can fail in every way there is
            words = str(error).translate({v: k for k, v in table.items()})
            raise InvalidArgumentError(f"the chat template refuses these messages: {words}") from error
        return Rendered(tuple(self._split("".join(parts), {v: k for k, v in table.items()})))

    def _split(self, text: str, back: dict[int, int]) -> Iterator[tuple[str, bool]]:
        """(control token, True) and (plain text, False), in order."""
        at = 0
        for match in self.special.finditer(text) if self.special else ():
            if match.start() > at:
                yield text[at : match.start()].translate(back), False
            yield match[0], True
            at = match.end()
            while self.strips and text[at : at + 1].isspace():
                at += 1
        if at < len(text):
            yield text[at:].translate(back), False

    def encode(self, rendered: Rendered) -> list[int]:
        """Token ids; a BOS that the tokenizer wants is there exactly once."""
        ids: list[int] = []
        for text, is_control in rendered.pieces:
            ids += self.tokenizer.encode(text, markup=is_control)
        bos = self.tokenizer.bos
        if self.tokenizer.adds_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids


def _risky_characters(special: list[str]) -> set[str]:
    """Characters without which no control token can be spelled: its punctuation, or all of it where it has none."""
    risky: set[str] = set()
    for token in special:
        marks = {c for c in token if not c.isalnum() and not c.isspace()} - UNTOUCHED
        risky |= marks or (set(token) - UNTOUCHED)
    return risky


def _template_words(source: str) -> set[str]:
    """Strings and names that the template may compare messages with."""
    tree = _Environment().parse(source)
    words = {node.value for node in tree.find_all(jinja2.nodes.Const) if isinstance(node.value, str)}
    return words | {node.attr for node in tree.find_all(jinja2.nodes.Getattr)}


def _is_harmless(word: str, special: list[str]) -> bool:
    """No occurrence of word can overlap an occurrence of a control token."""
    if len(word) < 2:
        return False
    for token in special:
        if word in token or token in word:
            return False
        for n in range(1, min(len(word), len(token))):
            if token.endswith(word[:n]) or token.startswith(word[-n:]):
                return False
    return True


def _stand_ins(risky: str, values: Any) -> dict[int, int]:
    """For str.translate: each risky character's stand-in, none of which occurs in values."""
    used: set[int] = set()

    def look(value: Any) -> None:
        if isinstance(value, str):
            used.update(c for c in map(ord, value) if c >= PRIVATE_FIRST)
        elif isinstance(value, Mapping):
            for k, v in value.items():
                look(k)
                look(v)
        elif isinstance(value, (list, tuple)):
            for v in value:
                look(v)

    look(values)
    free = (c for c in range(PRIVATE_FIRST, PRIVATE_LAST + 1) if c not in used)
    return {ord(c): next(free) for c in risky}


def check_messages(messages: Sequence[Message]) -> None:
    """Raises InvalidArgumentError unless this is a list of dicts, each with a role."""
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise InvalidArgumentError("messages is not a list of dicts with 'role' and 'content'")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InvalidArgumentError(f"message {i} is {message!r}; expected a dict with 'role' and 'content'")
        if not ROLE.fullmatch(message["role"]):
            raise InvalidArgumentError(f"message {i} has role {message['role']!r}; expected a word such as 'user'")
    if not messages:
        raise InvalidArgumentError("messages is empty; expected at least one")
