"""One timeline of tokens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from les import _core
from les.errors import InvalidArgumentError
from les.generate import Turns, count_shared


class Session:
    """One timeline of tokens and what the model remembers of them. Calls from several threads take turns."""

    def __init__(self, core: _core.Session) -> None:
        self._core = core
        self._lock = threading.RLock()
        self.turns = Turns()  # of texts: a stream holds it from its first token to its last
        self.is_closed = False

    @property
    def position(self) -> int:
        """Tokens so far."""
        with self._lock:
            return self._core.position

    @property
    def tokens(self) -> list[int]:
        with self._lock:
            return self._core.tokens

    def eval(self, tokens: Sequence[int], all_logits: bool = False) -> npt.NDArray[np.float32]:
        """Feeds tokens; logits [n or 1, n_vocab] after each, or after the last. On any error the session is as before.

        Ctrl-C stops it within a layer, like cancel.
        """
        with self._lock:
            if self.is_closed:
                raise InvalidArgumentError("the session is closed")
            if len(tokens) == 1 or threading.current_thread() is not threading.main_thread():
                return self._core.eval(tokens, all_logits)
            return self._eval_interruptibly(tokens, all_logits)

    def _eval_interruptibly(self, tokens: Sequence[int], all_logits: bool) -> npt.NDArray[np.float32]:
        # Python runs signal handlers in the main thread only, and not while that is in native code: a long prefill
        # would not notice Ctrl-C. So it runs beside, and the main thread waits for it.
        result: list[npt.NDArray[np.float32]] = []
        failure: list[BaseException] = []
        done = threading.Event()

        def work() -> None:
            try:
                result.append(self._core.eval(tokens, all_logits))
            except BaseException as error:
                failure.append(error)
            finally:
                done.set()

        position = self._core.position
        worker = threading.Thread(target=work, name="les-prefill", daemon=True)
        try:
            worker.start()
            done.wait()
        except BaseException:
            self._cancel_until(done)
            if result:  # it was done just before the interruption
                self._core.rewind(position)
            raise
        if failure:
            raise failure[0]
        return result[0]

    def _cancel_until(self, done: threading.Event) -> None:
        while True:
            try:
                while not done.wait(0.01):  # again and again: a cancel before the step begins is forgotten
                    self._core.cancel()
                return
            except KeyboardInterrupt:
                continue

    def sync(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Makes the session hold exactly these tokens, computing only new ones; logits [1, n_vocab] after the last."""
        if not tokens:
            raise InvalidArgumentError("sync needs at least one token")
        with self._lock:
            n_kept = count_shared(self._core.tokens, tokens)
            self._core.rewind(n_kept)
            return self.eval(list(tokens[n_kept:]))

    def routing(self) -> npt.NDArray[np.int32]:
        """Experts chosen in the last eval: [MoE layers, n, experts used], highest score first."""
        with self._lock:
            return self._core.routing()

    def attach_drafter(self, drafter: _core.Drafter) -> None:
        """Lets a draft model see what is computed; takes back the tokens that it has not seen."""
        with self._lock:
            self._core.attach_drafter(drafter)
            self._core.rewind(self._core.drafter_rows)

    def draft(self, anchor: int, n: int) -> dict[str, Any]:
        """n tokens that the attached draft model guesses after all tokens and anchor, and their confidences or None."""
        with self._lock:
            return self._core.draft(anchor, n)

    def rewind(self, n: int) -> None:
        """Keeps the first n tokens."""
        with self._lock:
            self._core.rewind(n)

    def cancel(self) -> None:
        """From another thread: a running eval raises CancelledError. Without one, nothing."""
        with contextlib.suppress(InvalidArgumentError):  # closed
            self._core.cancel()

    def save(self, path: str | Path) -> None:
        """Writes tokens and state to a file, atomically; load continues bit for bit."""
        with self._lock:
            self._core.save(str(path))

    def load(self, path: str | Path) -> None:
        """Replaces tokens and state by a saved session's, made with the same model and kv_type."""
        with self._lock:
            self._core.load(str(path))

    def close(self) -> None:
        """Frees its memory; what runs in it in another thread is cancelled first. Twice is fine."""
        self.turns.shut()
        while not self._lock.acquire(timeout=0.02):
            self.cancel()
        try:
            if not self.is_closed:
                self.is_closed = True
                self._core.close()
        finally:
            self._lock.release()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
