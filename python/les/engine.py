"""Models and sessions: what `import les` gives to programs."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import numpy as np

from les import _core
from les._core import Tokenizer
from les.chat_template import CHATML, ChatTemplate, Message
from les.draft import Drafter, DsparkDrafter, ModelDrafter, NgramDrafter, WidthChooser
from les.errors import InvalidArgumentError
from les.generate import GenerationResult, Speculation, StopRules, TextStream
from les.sampler import SamplingParams
from les.session import Session
from les.sizes import parse_size

if TYPE_CHECKING:
    from typing_extensions import Unpack

Prompt = str | Sequence[Message] | Sequence[int]
Progress = Callable[[int, int], None]

MAX_DRAFT = _core.LOG_TOKENS - 1  # with its anchor as long as what a recurrent layer can take back


class GenerateSettings(TypedDict, total=False):
    """Keywords of Model.generate, for type checkers; their defaults and meaning stand there."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_last_n: int
    seed: int | None
    logit_bias: Mapping[int, float] | None
    stop: str | int | Iterable[str | int]
    logprobs: int | None
    raw: bool
    system: str | None
    template: str | None
    tools: Sequence[Mapping[str, Any]] | None
    thinking: bool | None
    template_variables: Mapping[str, Any] | None
    session: Session | None
    draft: str | Path | Drafter | None
    draft_max: int
    draft_fixed: bool


class Model:
    """A loaded model. Threads take turns; two models in one process are independent. A context manager; or close it."""

    def __init__(self, path: str, core: _core.Engine, log: Callable[[str], None] | None = None) -> None:
        self.path = path
        self._core = core
        self._log = log
        self._lock = threading.RLock()  # of what follows, and of calls that a close must not overtake
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._session: Session | None = None
        self._template: ChatTemplate | None = None
        self._choosers: dict[tuple[str, int], WidthChooser] = {}
        self._is_closed = False
        self.tokenizer: Tokenizer = core.tokenizer

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<les.Model {self.path!r}{' (closed)' if self._is_closed else ''}>"

    @property
    def architecture(self) -> str:
        return self._core.architecture

    @property
    def context(self) -> int:
        """Tokens that a session can hold."""
        return self._core.context

    @property
    def n_vocab(self) -> int:
        return self._core.n_vocab

    @property
    def moe_layers(self) -> list[int]:
        return self._core.moe_layers

    @property
    def metadata(self) -> dict[str, Any]:
        return self._core.metadata

    @property
    def plan(self) -> dict[str, Any]:
        """The memory plan in force; keys as of les.plan."""
        return self._core.plan

    def stats(self) -> dict[str, Any]:
        """Counters since loading: tokens, hits, bytes read, stalls, and the same per layer; keys as in _core.pyi."""
        with self._lock:
            return self._core.stats()

    def reset_stats(self) -> None:
        with self._lock:
            self._core.reset_stats()

    def set_memory(self, memory: str | int | None) -> None:
        """Changes the budget; sessions keep their state. Raises BudgetError below the floor."""
        with self._lock:
            self._core.set_memory(parse_size(memory))

    def session(self) -> Session:
        """A new timeline. Its memory comes out of the expert cache. It ends with the model."""
        with self._lock:
            session = Session(self._core.session())
            self._sessions.add(session)
            return session

    def default_session(self) -> Session:
        """The session that generate uses when it is given none."""
        with self._lock:
            if self._session is None:
                self._session = self.session()
            return self._session

    def close(self) -> None:
        """Frees everything. What runs in other threads is cancelled: their texts end early. Later calls raise
        InvalidArgumentError. Twice is fine."""
        with self._lock:
            self._is_closed = True
            for session in list(self._sessions):
                session.close()
            self._session = None
            self._core.close()

    # --- prompts ---------------------------------------------------------------------------------

    @property
    def has_chat_template(self) -> bool:
        return "tokenizer.chat_template" in self.metadata

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's own template; ChatML where the file has none, said once: to log, or as a UserWarning."""
        with self._lock:
            if self._template is None:
                if not self.has_chat_template:
                    news = f"{Path(self.path).name} has no chat template: ChatML is used"
                    if self._log:
                        self._log(news)
                    else:
                        warnings.warn(news, stacklevel=2)
                self._template = ChatTemplate(self.metadata.get("tokenizer.chat_template", CHATML), self.tokenizer)
            return self._template

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        template: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
        **variables: Any,
    ) -> list[int]:
        """Token ids of a chat up to where the assistant speaks.

        template: Jinja text instead of the model's own. tools: functions on offer, as OpenAI's API describes them.
        thinking: what the template reads as enable_thinking; None leaves it to the template. variables go to the
        template as they are. Raises InvalidArgumentError with the template's words when it refuses.
        """
        chosen = ChatTemplate(template, self.tokenizer) if template is not None else self.chat_template
        if thinking is not None:
            variables["enable_thinking"] = thinking
        return chosen.encode(chosen.render(messages, tools=tools, **variables))

    def encode_prompt(
        self,
        prompt: Prompt,
        *,
        raw: bool = False,
        system: str | None = None,
        template: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
        template_variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of any kind of prompt: text, messages or tokens. Text becomes a user message where the model has a
        chat template, unless raw."""
        if isinstance(prompt, str):
            if raw or (not self.has_chat_template and template is None and system is None):
                ids = self.tokenizer.encode(prompt, special=True)
                if not ids and self.tokenizer.bos is not None:
                    return [self.tokenizer.bos]
                return ids
            prompt = [{"role": "user", "content": prompt}]
        if isinstance(prompt, np.ndarray) or all(isinstance(t, (int, np.integer)) for t in prompt):
            return [int(t) for t in prompt]  # type: ignore[arg-type]
        messages: list[Message] = list(prompt)  # type: ignore[arg-type]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        return self.apply_chat_template(
            messages, template=template, tools=tools, thinking=thinking, **dict(template_variables or {})
        )

    # --- text ------------------------------------------------------------------------------------

    @overload
    def generate(
        self, prompt: Prompt, *, stream: Literal[False] = False, **settings: Unpack[GenerateSettings]
    ) -> GenerationResult: ...
    @overload
    def generate(
        self, prompt: Prompt, *, stream: Literal[True], **settings: Unpack[GenerateSettings]
    ) -> TextStream: ...

    def generate(
        self,
        prompt: Prompt,
        *,
        stream: bool = False,
        max_tokens: int = 512,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        repeat_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        penalty_last_n: int = 64,
        seed: int | None = None,
        logit_bias: Mapping[int, float] | None = None,
        stop: str | int | Iterable[str | int] = (),
        logprobs: int | None = None,
        raw: bool = False,
        system: str | None = None,
        template: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
        template_variables: Mapping[str, Any] | None = None,
        session: Session | None = None,
        draft: str | Path | Drafter | None = None,
        draft_max: int = 8,
        draft_fixed: bool = False,
    ) -> GenerationResult | TextStream:
        """Continues a prompt: text (a user message where the model has a chat template, unless raw), a list of messages
        ({"role", "content"}), or token ids. system, template, tools and thinking are apply_chat_template's.

        stop: strings (not part of the text) and token ids. max_tokens -1: until the context is full. temperature 0: the
        likeliest token always. seed: same seed and settings, same text. logprobs: how many alternatives to report.
        Without a session of its own the model's is used, so that a chat's next turn computes only what is new.
        stream=True gives an iterator of Chunk; its .result is what stream=False returns.
        draft: "ngram", a DSpark head's GGUF file or a Drafter guesses up to draft_max tokens, which the model verifies
        in one pass; how many is chosen by measured cost, or always draft_max with draft_fixed. The text is distributed
        as without.
        """
        params = SamplingParams(
            temperature,
            top_k,
            top_p,
            min_p,
            repeat_penalty,
            presence_penalty,
            frequency_penalty,
            penalty_last_n,
            seed,
            dict(logit_bias or {}),
        )
        stops = (stop,) if isinstance(stop, (str, int)) else tuple(stop)
        texts = tuple(s for s in stops if not isinstance(s, (int, np.integer)))
        rules = StopRules(max_tokens, texts, frozenset(int(s) for s in stops if isinstance(s, (int, np.integer))))
        if logprobs is not None and not 0 <= logprobs <= 100:
            raise InvalidArgumentError(f"logprobs is {logprobs}; expected 0 to 100")
        ids = self.encode_prompt(
            prompt,
            raw=raw,
            system=system,
            template=template,
            tools=tools,
            thinking=thinking,
            template_variables=template_variables,
        )
        if isinstance(draft_max, bool) or not isinstance(draft_max, int) or not 0 <= draft_max <= MAX_DRAFT:
            raise InvalidArgumentError(f"draft_max is {draft_max!r}; expected 0 to {MAX_DRAFT}")
        speculation = self._speculation(draft, draft_max, draft_fixed) if draft is not None else None
        text = TextStream(
            session or self.default_session(),
            self.tokenizer,
            ids,
            params,
            rules,
            context=self.context,
            stats=self.stats,
            logprobs=logprobs,
            speculation=speculation,
        )
        return text if stream else text.result

    def _speculation(self, draft: str | Path | Drafter, draft_max: int, is_fixed: bool) -> Speculation:
        drafter = self._drafter(draft)
        width = min(draft_max, drafter.block)
        if is_fixed:
            return Speculation(drafter, width, True)
        with self._lock:  # what was learned about widths stays for the next text
            chooser = self._choosers.setdefault((drafter.name, width), WidthChooser(width))
        return Speculation(drafter, width, False, chooser)

    def _drafter(self, draft: str | Path | Drafter) -> Drafter:
        if isinstance(draft, str) and draft == "ngram":
            return NgramDrafter()
        if isinstance(draft, ModelDrafter):
            draft.check_target(self)
        if isinstance(draft, Drafter):
            return draft
        if isinstance(draft, (str, Path)) and Path(draft).exists():
            path = str(Path(draft).resolve())
            return DsparkDrafter(self._core.open_drafter(path), path)
        raise InvalidArgumentError(
            f'draft is {str(draft)!r}; expected "ngram", the file of a draft model, or a Drafter'
        )


def _options(memory: str | int | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"memory_bytes": parse_size(memory), **settings}


def load(
    model: str | Path,
    *,
    memory: str | int | None = None,
    threads: int = 0,
    context: int = 0,
    kv_type: str = "f16",
    chunk: int = 0,
    flash: str | None = None,
    reader: str = "auto",
    lanes: int = 0,
    direct: bool = True,
    verify: bool = True,
    prefetch: str = "auto",
    policy: str = "shares",
    compute: str = "int8",
    fault: str | None = None,
    progress: Progress | None = None,
    log: Callable[[str], None] | None = None,
) -> Model:
    """Loads a model: a `.les` or `.gguf` file, any shard of one, a folder, or the name of an installed model ("demo").

    memory: the budget of the whole process ("3GiB"); None: what the model needs, within what the machine has.
    context: tokens; 0: the model's, at most 4096. kv_type: "f16", "f32" or "q8_0". flash: simulated flash for
    experiments ("ufs4", "nvme", "emmc" or "GB/s,lanes,µs"). verify: check each expert's checksum when first read.
    prefetch: "auto", "on" or "off". compute: "f32" keeps activations in float, slower. fault: injected read faults, for
    tests. progress(done_bytes, total_bytes) while the trunk loads; log(line) for news.

    Raises NotFoundError, CorruptFileError, UnsupportedError, BudgetError (naming the floor), InvalidArgumentError.
    """
    from les.models import resolve

    path = str(resolve(model))
    settings = {
        "threads": threads,
        "context": context,
        "kv_type": kv_type,
        "chunk": chunk,
        "flash": flash,
        "reader": reader,
        "lanes": lanes,
        "direct": direct,
        "verify": verify,
        "prefetch": prefetch,
        "policy": policy,
        "compute": compute,
        "fault": fault,
        "log": log,
    }
    return Model(path, _core.Engine(path, _options(memory, settings), progress), log)


def plan(model: str | Path, *, memory: str | int | None = None, **settings: Any) -> dict[str, Any]:
    """What running a model takes, from its headers alone: floor_bytes, recommended_bytes, trunk_bytes, expert_bytes,
    kv_bytes, ..., n_slots (experts that fit), fits, message. Settings as for load."""
    from les.models import resolve

    return _core.plan_memory(str(resolve(model)), _options(memory, settings))


def generate(
    model: str | Path,
    prompt: Prompt,
    *,
    memory: str | int | None = None,
    threads: int = 0,
    context: int = 0,
    **options: Any,
) -> GenerationResult:
    """Loads a model, continues a prompt, and closes the model again. Options as for Model.generate."""
    with load(model, memory=memory, threads=threads, context=context) as loaded:
        return loaded.generate(prompt, stream=False, **options)
