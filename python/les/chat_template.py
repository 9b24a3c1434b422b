"""Chat messages to tokens, by the Jinja template that the model ships.

A template's own markup becomes control tokens; what users wrote never does, whatever it spells. To keep the two apart,
every piece of control-token text inside a message is replaced by a private mark before rendering; afterwards the marks
are put back, and exactly those places are encoded as plain text.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox

from les._core import Tokenizer
from les.errors import InvalidArgumentError

MAX_CHARACTERS = 8 << 20
# Private-use characters around a number: no template looks into them, and text that has them is passed through.
MARK_OPEN, MARK_CLOSE = "\U000f1a5e", "\U000f1a5f"

CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")

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


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None,
            sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@dataclass(frozen=True)
class Rendered:
    """A rendered chat: pieces of (text, is_markup). Plain pieces are what messages spelled like control tokens."""

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

    def _defuse(self, value: Any, marks: list[str]) -> Any:
        """A copy of value in which every control-token text is a mark."""
        if isinstance(value, str):
            if self.special is None:
                return value

            def mark(match: re.Match[str]) -> str:
                marks.append(match[0])
                return f"{MARK_OPEN}{len(marks) - 1}{MARK_CLOSE}"

            return self.special.sub(mark, value.replace(MARK_OPEN, "").replace(MARK_CLOSE, ""))
        if isinstance(value, Mapping):
            return {self._defuse(k, marks): self._defuse(v, marks) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._defuse(v, marks) for v in value]
        return value

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True,
               tools: Sequence[Mapping[str, Any]] | None = None, **variables: Any) -> Rendered:
        """messages: dicts with role and content. variables: whatever the template reads (enable_thinking, ...).

        Raises InvalidArgumentError with the template's own words when it refuses the messages.
        """
        check_messages(messages)
        marks: list[str] = []
        tokenizer = self.tokenizer
        names = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
        context: dict[str, Any] = {k: tokenizer.id_to_token(v) if v is not None else "" for k, v in names.items()}
        context.update(variables)
        parts: list[str] = []
        size = 0
        try:
            stream = self.template.generate(messages=self._defuse(list(messages), marks), tools=self._defuse(tools, marks),
                                            add_generation_prompt=add_generation_prompt, **context)
            for part in stream:
                size += len(part)
                if size > MAX_CHARACTERS:
                    raise InvalidArgumentError(f"the chat template writes more than {MAX_CHARACTERS} characters")
                parts.append(part)
        except InvalidArgumentError:
            raise
        except Exception as error:  # a template is a program: it can fail in every way there is
            raise InvalidArgumentError(f"the chat template refuses these messages: {error}") from error
        return Rendered(tuple(_split_marks("".join(parts), marks)))

    def encode(self, rendered: Rendered) -> list[int]:
        """Token ids. Markup text is encoded with its control tokens, the rest as plain text; a BOS that the tokenizer
        wants is there exactly once."""
        ids: list[int] = []
        for text, is_markup in rendered.pieces:
            ids += self.tokenizer.encode(text, markup=is_markup)
        bos = self.tokenizer.bos
        if self.tokenizer.adds_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids


def _split_marks(text: str, marks: list[str]) -> list[tuple[str, bool]]:
    pieces: list[tuple[str, bool]] = []
    at = 0
    for match in re.finditer(f"{MARK_OPEN}([0-9]+){MARK_CLOSE}", text):
        if match.start() > at:
            pieces.append((text[at:match.start()], True))
        pieces.append((marks[int(match[1])], False))
        at = match.end()
    if at < len(text):
        pieces.append((text[at:], True))
    return pieces


def check_messages(messages: Sequence[Message]) -> None:
    """Raises InvalidArgumentError unless this is a list of dicts, each with a role."""
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise InvalidArgumentError("messages is not a list of dicts with 'role' and 'content'")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InvalidArgumentError(f"message {i} is {message!r}; expected a dict with 'role' and 'content'")
    if not messages:
        raise InvalidArgumentError("messages is empty; expected at least one")
