"""`les chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import les
from les.cli.common import (
    SAMPLING,
    add_model_options,
    add_sampling_options,
    err,
    load_model,
    out,
    sampling_settings,
    stats_line,
)
from les.models import cache_dir
from les.models.cache import DEMO
from les.sizes import format_size

EXAMPLES = """examples:
  les chat                                  the demo model, built on first use
  les chat MODEL.les --memory 3GiB
  les chat demo --system "You are a pirate." --temperature 0.7 --seed 1

in the chat: /help shows the commands, Ctrl-C stops a reply, Ctrl-D leaves.
"""

HELP = """/help                 this list
/system TEXT          set the system message (and start anew)
/set NAME VALUE       change a setting; /set alone shows them
/show                 the model and its memory
/stats                what streaming has cost so far
/clear                forget the conversation
/regen                answer the last message again
/save FILE            write the conversation to a file
/load FILE            go on with a saved one
/multi                several lines until a line with a single dot; so do lines between \"\"\"
/exit                 leave (Ctrl-D as well)"""


def register(subparsers: Any) -> None:
    p = subparsers.add_parser(
        "chat",
        help="chat with a model",
        description="Chat with a model in the terminal.",
        epilog=EXAMPLES,
    )
    p.add_argument("model", nargs="?", default=DEMO, help="file, folder or name; default: the demo model")
    p.add_argument("--system", metavar="TEXT", help="system message")
    add_model_options(p)
    add_sampling_options(p)
    p.set_defaults(run=run)


class Chat:
    """The conversation and its commands; prints through `say`, knows no terminal."""

    def __init__(
        self, model: les.Model, settings: dict[str, Any], system: str | None, verbose: bool, say: Callable[[str], None]
    ) -> None:
        self.model, self.settings, self.system, self.verbose, self.say = model, settings, system, verbose, say
        self.messages: list[dict[str, str]] = []
        self.commands: dict[str, Callable[[str], bool]] = {
            "help": self.help,
            "system": self.set_system,
            "set": self.set,
            "show": self.show,
            "stats": self.stats,
            "clear": self.clear,
            "regen": self.regen,
            "save": self.save,
            "load": self.load,
        }

    # --- talking -------------------------------------------------------------------------------

    def prompt(self) -> list[dict[str, str]]:
        head = [{"role": "system", "content": self.system}] if self.system else []
        return head + self.messages

    def fit(self) -> None:
        """Drops the oldest turns, at the level of the template, until the prompt leaves room for a reply."""
        room = self.model.context - min(256, self.model.context // 4)
        dropped = 0
        while len(self.messages) > 1 and len(self.model.apply_chat_template(self.prompt())) > room:
            del self.messages[0]
            while len(self.messages) > 1 and self.messages[0]["role"] != "user":
                del self.messages[0]
            dropped += 1
        if dropped:
            self.say(f"(the context is full: {dropped} of the oldest turns are forgotten)")

    def reply(self, text: str) -> None:
        """One turn: streams the answer to stdout. Ctrl-C keeps what was written."""
        self.messages.append({"role": "user", "content": text})
        self.fit()
        try:
            stream = self.model.generate(self.prompt(), stream=True, **self.settings)
        except les.LesError as error:
            self.messages.pop()
            self.say(f"error: {error}")
            return
        stopped = False
        with stream:
            try:
                for chunk in stream:
                    out(chunk.text, end="")
            except KeyboardInterrupt:
                stopped = True
            except les.LesError as error:
                out()
                self.say(f"error: {error}")
                self.messages.pop()
                return
        out()
        result = stream.result
        if stopped:
            self.say("(stopped)")
        elif result.finish_reason == "length":
            self.say("(cut at the limit: /set max_tokens N allows more)")
        self.messages.append({"role": "assistant", "content": result.text})
        if self.verbose:
            self.say(stats_line(result))

    def handle(self, line: str) -> bool:
        """One line of input: a command or a message. False: leave."""
        if not line.strip():
            return True
        if not line.startswith("/"):
            self.reply(line)
            return True
        name, _, rest = line[1:].partition(" ")
        if name in ("exit", "quit", "bye"):
            return False
        command = self.commands.get(name)
        if command is None:
            self.say(f"no command /{name}; /help shows them all")
            return True
        return command(rest.strip())

    # --- commands ------------------------------------------------------------------------------

    def help(self, _: str) -> bool:
        self.say(HELP)
        return True

    def set_system(self, text: str) -> bool:
        self.system = text or None
        self.messages.clear()
        self.say(f"system message: {text}" if text else "no system message")
        return True

    def set(self, text: str) -> bool:
        name, _, value = text.partition(" ")
        known = {
            **{n: self.settings.get(n) for n in SAMPLING},
            "max_tokens": self.settings.get("max_tokens"),
            "verbose": self.verbose,
            "memory": self.model.plan["budget_bytes"],
        }
        if not name:
            self.say("\n".join(f"{k} = {v}" for k, v in known.items()))
            return True
        name = name.replace("-", "_")
        if name not in known:
            self.say(f"no setting {name}; there are: {', '.join(known)}")
            return True
        try:
            if name == "verbose":
                self.verbose = value.strip().lower() in ("", "1", "on", "true", "yes")
            elif name == "memory":
                self.model.set_memory(None if value in ("", "auto") else value)
            else:
                number: Any = (
                    None
                    if value in ("", "none")
                    else (int(value) if name in ("top_k", "seed", "max_tokens") else float(value))
                )
                settings = {**self.settings, name: number}
                if number is None and name != "seed":
                    settings.pop(name)
                les.SamplingParams(**{k: v for k, v in settings.items() if k in SAMPLING})
                self.settings = settings
        except ValueError as error:
            self.say(f"error: {error}")
        except les.LesError as error:
            self.say(f"error: {error}")
        else:
            self.say(f"{name} = {value or 'default'}")
        return True

    def show(self, _: str) -> bool:
        plan = self.model.plan
        self.say(
            f"{self.model.metadata.get('general.name', self.model.path)} ({self.model.architecture})\n"
            f"{plan['message']}: {plan['n_slots']} of {plan['n_experts_total']} experts, "
            f"{format_size(plan['total_bytes'])} in all\n"
            f"context {self.model.context} tokens" + (f"\nsystem: {self.system}" if self.system else "")
        )
        return True

    def stats(self, _: str) -> bool:
        s = self.model.stats()
        used = s["hit"] + s["miss"] + s["late"]
        decode = s["decode_tokens"] / (s["decode_ns"] / 1e9) if s["decode_ns"] else 0.0
        self.say(
            f"{s['n_tokens']} tokens, decode {decode:.1f} tok/s\n"
            f"experts: {s['hit'] / used if used else 1:.1%} in memory, {s['late']} late, {s['miss']} read on demand\n"
            f"read {format_size(s['flash_bytes'])} from disk ({s['reader']}), waited {s['stall_ns'] / 1e9:.2f} s\n"
            f"read ahead: {format_size(s['useful_bytes'])} useful, {format_size(s['wasted_bytes'])} wasted\n"
            f"peak memory {format_size(s['peak_bytes'])}"
        )
        return True

    def clear(self, _: str) -> bool:
        self.messages.clear()
        self.say("forgotten")
        return True

    def regen(self, _: str) -> bool:
        while self.messages and self.messages[-1]["role"] != "user":
            self.messages.pop()
        if not self.messages:
            self.say("nothing to answer yet")
            return True
        self.reply(self.messages.pop()["content"])
        return True

    def save(self, name: str) -> bool:
        if not name:
            self.say("/save FILE")
            return True
        try:
            Path(name).write_text(
                json.dumps({"system": self.system, "messages": self.messages}, ensure_ascii=False, indent=1), "utf-8"
            )
        except OSError as error:
            self.say(f"error: {name}: {error.strerror}")
        else:
            self.say(f"{len(self.messages)} messages saved to {name}")
        return True

    def load(self, name: str) -> bool:
        try:
            data = json.loads(Path(name).read_text("utf-8"))
            messages = [{"role": str(m["role"]), "content": str(m["content"])} for m in data["messages"]]
            system = data.get("system")
        except OSError as error:
            self.say(f"error: {name}: {error.strerror}")
        except (ValueError, KeyError, TypeError):
            self.say(f"error: {name}: not a saved conversation")
        else:
            self.messages, self.system = messages, system
            self.say(f"{len(messages)} messages loaded from {name}")
        return True


def read_block(read: Callable[[str], str], first: str) -> str | None:
    """The rest of a multi-line message: until a line of \"\"\" or a single dot. None: given up."""
    lines = [first] if first else []
    while True:
        try:
            line = read("... ")
        except (EOFError, KeyboardInterrupt):
            return None
        if line.strip() == "." or line.rstrip().endswith('"""'):
            rest = line.rstrip().removesuffix('"""')
            return "\n".join([*lines, rest] if rest.strip(". ") else lines)
        lines.append(line)


def terminal_reader() -> Callable[[str], str]:
    """Line editing with history where there is a terminal; plain lines elsewhere."""
    if not sys.stdin.isatty():

        def plain(prompt: str) -> str:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\n")

        return plain
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory

    cache_dir().mkdir(parents=True, exist_ok=True)
    session: PromptSession[str] = PromptSession(history=FileHistory(str(cache_dir() / "chat_history")))
    return lambda prompt: session.prompt(prompt)


def run(args: argparse.Namespace) -> int:
    with load_model(args) as model:
        chat = Chat(
            model,
            sampling_settings(args),
            args.system,
            args.verbose,
            lambda line: err.print(line, style="dim", markup=False, soft_wrap=True),
        )
        read = terminal_reader()
        if sys.stdin.isatty():
            chat.say(
                f"{model.metadata.get('general.name', args.model)}: {model.plan['message']}. /help shows the commands."
            )
        while True:
            try:
                line = read("> ")
                if line.strip() == "/multi":
                    line = read_block(read, "") or ""
                elif line.lstrip().startswith('"""'):
                    first = line.lstrip().removeprefix('"""')
                    line = first.removesuffix('"""') if first.endswith('"""') else read_block(read, first) or ""
            except KeyboardInterrupt:
                continue
            except EOFError:
                return 0
            try:
                if not chat.handle(line):
                    return 0
            except KeyboardInterrupt:
                out()
                chat.say("(stopped)")
