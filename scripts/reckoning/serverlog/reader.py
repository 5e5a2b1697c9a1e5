"""Reading a server log line by line: cheap enough for every line of a log that grows for hours."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections import deque

from reckoning.serverlog import memory, rules, stages
from reckoning.serverlog.model import Cause, LogReading, Stage
from reckoning.serverlog.rules import Kind, Rule

LONGEST_LINE = 4000  # characters that are looked at; a server's arguments fill one line of some 10 000
MOST_CANDIDATES = 200
EXCERPT_BEFORE, EXCERPT_AFTER, EXCERPT_END = 4, 16, 20

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"^\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)?(?P<rank>(?: [A-Z]+\d+)*)\]")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:: |:?$)")
_TRACEBACK = "Traceback (most recent call last)"
_UNHANDLED = re.compile(r"hit an exception|Initialization failed|Exception in")
_CHECKS_SETTINGS = re.compile(r"server_args\.py|model_config\.py")
_ASKED_TO_STOP = re.compile(r"^(?:asyncio\.exceptions\.)?CancelledError|^KeyboardInterrupt|^SystemExit|^GeneratorExit")
_DEATH = re.compile(r"hit an exception|Received sigquit|died during initialization|Triggering SIGQUIT|Killed$")
_CUDA_GRAPH = re.compile(r"cuda graph: (True|False)")
# A line may be a cause only if it has one of these words: a few microseconds spare most lines some forty searches.
TRIGGERS = (
    *(
        "rror",
        "ERROR",
        "xception",
        "ail",
        "FAIL",
        "ill",
        "fatal",
        "ninja",
        "nccl",
        "NCCL",
        "CUDA",
        "too old",
        "insufficient",
    ),
    *(
        "annot",
        "undefined",
        "incompatible",
        "nsupported",
        "of memory",
        "OutOfMem",
        "alloc",
        "No space",
        "not ",
        "ollective",
        "Safetensor",
        "ECC",
        "Xid",
        "launch failure",
        "fallen off",
    ),
    *(
        "in use",
        "EADDR",
        "sm75",
        "kernel image",
        "NVIDIA driver",
        "compat",
        "register_",
        "custom_all",
        "must match",
        "invalid",
    ),
    *(
        "make sure",
        "divisible",
        "uantiz",
        "weight_",
        "apability",
        "Repo",
        "weights",
        "nrecogn",
        "illegal",
        "misaligned",
    ),
    *("device-side", "exit", "signal", "SIGTERM", "atchdog", "by peer", "pipe", "sigquit", "SIGQUIT", "died", "Segm"),
    *("terminate", "version"),
)


@dataclasses.dataclass(frozen=True)
class _Failure:
    """What a line says to be wrong."""

    class_: str
    kind: Kind
    cause: str
    remedy: str
    explains: tuple[str, ...] = ()


@dataclasses.dataclass
class _Candidate:
    """A failure and the place in the log where it was said."""

    failure: _Failure
    evidence: str
    line: int
    stage: str | None
    episode: int
    before: tuple[str, ...]
    after: list[str]
    handled: bool


class LogReader:
    """Reads a log that arrives in pieces of any size; `reading()` may be asked for at any time.

    The cause is the first one in the log. A hint (a warning that explains a later failure) comes before that failure;
    a general failure ("Ninja build failed") gives way to a specific one in the same death ("curand.h: not found"); what
    one process says because another died gives way to anything else. A traceback that the server logged and went on
    after is none. A server that becomes ready has survived whatever exceptions it logged before, except compile errors,
    which come back with each request that needs the kernel.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._lines = 0
        self._stages: list[Stage] = []
        self._stage_of_rank: dict[str, str] = {}
        self._solid_stage_of_rank: dict[str, str] = {}
        self._leader: str | None = None
        self._candidates: list[_Candidate] = []
        self._episode = 0
        self._frames: list[str] | None = None
        self._rank = ""
        self._stopping = False
        self._handled = False
        self._recent: deque[str] = deque(maxlen=EXCERPT_END)
        self._open: list[_Candidate] = []
        self._decode = {"graph": 0, "eager": 0}

    def feed(self, text: str) -> None:
        """Take the next piece of the log; the last line may be incomplete."""
        pieces = (self._rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = pieces.pop()
        if len(self._rest) > 4 * LONGEST_LINE:  # a line that never ends must not fill the memory
            self._rest = self._rest[:LONGEST_LINE]
        for piece in pieces:
            self._take(piece)

    def reading(self, *, stalled: bool = False, exit_code: int | None = None) -> LogReading:
        """Return what has been read so far.

        `stalled`: the caller knows that the log will not grow any more although the server did not end. `exit_code`:
        how the server ended (negative: the signal). Both only matter where the log itself names no cause.
        """
        reader = self
        if self._rest:  # an unfinished line is read by a copy: its end may still come
            reader = copy.deepcopy(self)
            reader._rest = ""
            reader._take(self._rest)
        return reader._reading(stalled, exit_code)

    def _reading(self, stalled: bool, exit_code: int | None) -> LogReading:
        chosen, symptom = _choose(self._candidates)
        cause = _as_cause(chosen, symptom) if chosen else None
        if cause is None or cause.class_ == "peer-lost":
            cause = self._from_ending(stalled, exit_code) or cause
        excerpt = "\n".join([*chosen.before, chosen.evidence, *chosen.after] if chosen else self._recent)
        last = self._stages[-1].name if self._stages else None
        return LogReading(tuple(self._stages), last, cause, excerpt, self._lines, dict(self._decode))

    def _take(self, raw: str) -> None:
        self._lines += 1
        line = raw[:LONGEST_LINE].rstrip()
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        if self._open:
            for candidate in self._open:
                candidate.after.append(line)
            self._open = [candidate for candidate in self._open if len(candidate.after) < EXCERPT_AFTER]
        self._read(line)
        self._recent.append(line)

    def _read(self, line: str) -> None:
        if self._lines == 1:
            self._stages.append(Stage(stages.PROCESS_START, 1, _at(line)))
        if self._frames is not None and (not line or line[0] in " \t"):
            self._frames.append(line)
            del self._frames[:-80]
            return
        if "cuda graph: " in line:
            self._count_decode(line)
            return
        prefix = _PREFIX.match(line) if line.startswith("[") else None
        if prefix:
            self._rank = prefix["rank"].strip()
        if _TRACEBACK in line:
            self._note_death(line)
            self._frames = []
            self._handled = bool(prefix) and not _UNHANDLED.search(line)
            return
        body = line[prefix.end() :].lstrip() if prefix else line
        if self._frames is not None and not prefix and _EXCEPTION.match(body):
            frames, self._frames = "\n".join(self._frames), None
            self._exception(body, frames)
            self._handled = False
            return
        stage = stages.stage_of(body)
        if stage:
            self._candidates = [candidate for candidate in self._candidates if not candidate.handled]
            self._enter(stage, prefix["at"] if prefix else None)
        if '" 200 OK' in body:
            return
        if any(map(body.__contains__, TRIGGERS)) and not body.startswith("server_args="):
            self._note_death(body)
            rule, found = _match(body, None)
            if rule and found and not (self._stopping and rule.kind in (Kind.SECONDARY, Kind.GENERAL)):
                self._add(rule, found, body)

    def _exception(self, line: str, frames: str) -> None:
        if _ASKED_TO_STOP.match(line):
            return
        rule, found = _match(line, frames)
        if rule and found and rule.kind is not Kind.GENERAL:
            self._add(rule, found, line)
            return
        if _CHECKS_SETTINGS.search(frames) and not line.startswith(("ModuleNotFoundError", "ImportError")):
            text = f"the server refused the settings: {line.partition(': ')[2] or line}"
            last = _last_source_line(frames)
            remedy = "change the settings as the message says" + (f" (the check that failed: {last})" if last else "")
            self._append(_Failure("rejected-setting", Kind.DECISIVE, text, remedy), line)
        elif rule and found:
            self._add(rule, found, line, _last_source_line(frames))
        else:
            source = _last_source_line(frames)
            remedy = "read the excerpt" + (f"; it was raised at: {source}" if source else "")
            self._append(_Failure("unknown", Kind.GENERAL, f"first exception: {line}", remedy), line)

    def _add(self, rule: Rule, found: re.Match[str], line: str, source: str | None = None) -> None:
        class_ = rule.class_
        cause = rule.cause if isinstance(rule.cause, str) else rule.cause(found)
        remedy = rule.remedy if isinstance(rule.remedy, str) else rule.remedy(found)
        if class_ == "out-of-memory":
            class_ = memory.out_of_memory_class(self._solid_stage(), line)
            remedy = memory.out_of_memory_remedy(class_)
        if source:
            cause = f"{cause} (at: {source})"
        self._append(_Failure(class_, rule.kind, cause, remedy, rule.explains), line)

    def _append(self, failure: _Failure, line: str) -> None:
        if len(self._candidates) >= MOST_CANDIDATES or any(c.evidence == line for c in self._candidates):
            return
        before = tuple(self._recent)[-EXCERPT_BEFORE:]
        stage = self._stage_of_rank.get(self._rank) or (self._stages[-1].name if self._stages else None)
        candidate = _Candidate(failure, line, self._lines, stage, self._episode, before, [], self._handled)
        self._candidates.append(candidate)
        self._open.append(candidate)

    def _enter(self, name: str, at: str | None) -> None:
        if self._leader is None:
            self._leader = self._rank
        if name in _SERVING:  # the main process speaks for all: the ranks are where it is
            self._stage_of_rank.clear()
            self._solid_stage_of_rank.clear()
        self._stage_of_rank[self._rank] = name
        if name != stages.JIT_COMPILE:
            self._solid_stage_of_rank[self._rank] = name
        if name == stages.READY:
            self._candidates = [
                c for c in self._candidates if c.failure.kind is Kind.HINT or c.failure.class_ in _SURVIVE_READY
            ]
        follows = self._rank in ("", self._leader)
        if follows and (not self._stages or self._stages[-1].name != name):
            self._stages.append(Stage(name, self._lines, at))

    def _solid_stage(self) -> str | None:
        known = self._solid_stage_of_rank.get(self._rank)
        if known:
            return known
        return next((s.name for s in reversed(self._stages) if s.name != stages.JIT_COMPILE), None)

    def _note_death(self, line: str) -> None:
        if "SIGTERM received" in line:  # asked to stop: what the processes say of each other from here on is no failure
            self._stopping = True
        if _DEATH.search(line):
            self._episode += 1

    def _count_decode(self, line: str) -> None:
        found = _CUDA_GRAPH.search(line)
        if found and "Decode batch" in line:  # prefill runs without graphs as a rule
            self._decode["graph" if found[1] == "True" else "eager"] += 1

    def _from_ending(self, stalled: bool, exit_code: int | None) -> Cause | None:
        last = self._stages[-1].name if self._stages else None
        evidence, number = (self._recent[-1] if self._recent else ""), self._lines
        if exit_code in (-9, 137):
            class_, cause = "killed", "the server was killed from outside (SIGKILL), most often because memory ran out"
            remedy = "read the kernel's log for the out-of-memory killer"
        elif exit_code is not None and (exit_code < 0 or exit_code > 128):
            class_, cause = "crash", f"the server ended by signal {-exit_code if exit_code < 0 else exit_code - 128}"
            remedy = "read the end of the log; check that torch, FlashInfer and the driver fit each other"
        elif exit_code is not None:
            class_, cause = "exited", f"the server ended with code {exit_code} and no error in its log"
            remedy = "read the end of the log"
        elif stalled and last == stages.DISTRIBUTED:
            class_ = "p2p-hang"
            cause = "the log ends while the GPUs set up their communication: NCCL or peer-to-peer hangs"
            remedy = (
                "set NCCL_P2P_DISABLE=1 and add --disable-custom-all-reduce (both); on PCIe machines turn ACS off in "
                "the BIOS "
                "and boot with iommu=pt"
            )
        elif stalled:
            class_, cause = "stall", f"the log stopped growing in the stage: {last}"
            remedy = (
                "look for a stale lock in the JIT caches (python -m reckoning.environment probe)"
                if last in (stages.JIT_COMPILE, stages.GRAPH_CAPTURE)
                else "look at the server's processes (py-spy dump) and at the GPUs' load"
            )
        else:
            return None
        return Cause(class_, last, cause, evidence, number, remedy)


_SERVING = frozenset({stages.HTTP_SERVER, stages.WARM_UP, stages.READY})
# Kernels are compiled when first needed: these can be logged before a server is ready and still end it later.
_SURVIVE_READY = frozenset(
    {"missing-header", "link", "jit-compile", "toolkit-skew", "toolkit-too-old", "unsupported-architecture"}
)


def read_log(text: str, *, stalled: bool = False, exit_code: int | None = None) -> LogReading:
    """Read a whole log. `stalled` and `exit_code` say how it ended, where the caller knows; see `LogReader.reading`."""
    reader = LogReader()
    reader.feed(text)
    return reader.reading(stalled=stalled, exit_code=exit_code)


def _choose(candidates: list[_Candidate]) -> tuple[_Candidate | None, str | None]:
    failures = [candidate for candidate in candidates if candidate.failure.kind is not Kind.HINT]
    if not failures:
        return None, None
    chosen = next((c for c in failures if c.failure.kind is not Kind.SECONDARY), failures[0])
    if chosen.failure.kind is Kind.GENERAL:
        later = (c for c in failures if c.line > chosen.line and c.episode == chosen.episode)
        chosen = next((c for c in later if c.failure.kind is Kind.DECISIVE), chosen)
    for hint in candidates:
        if hint.line < chosen.line and chosen.failure.class_ in hint.failure.explains:
            return hint, chosen.evidence
    return chosen, None


def _as_cause(chosen: _Candidate, symptom: str | None) -> Cause:
    failure = chosen.failure
    return Cause(failure.class_, chosen.stage, failure.cause, chosen.evidence, chosen.line, failure.remedy, symptom)


def _match(line: str, frames: str | None) -> tuple[Rule | None, re.Match[str] | None]:
    for rule in rules.RULES:
        found = rule.pattern.search(line)
        if found and (rule.frames is None or (frames is not None and rule.frames.search(frames))):
            return rule, found
    return None, None


def _last_source_line(frames: str) -> str | None:
    """Return the source text of the innermost frame, which for a bare assert is all the message there is."""
    for line in reversed(frames.splitlines()):
        text = line.strip()
        if text and not text.startswith("File ") and not set(text) <= set("^~ "):
            return text[:200]
    return None


def _at(line: str) -> str | None:
    found = _PREFIX.match(line)
    return found["at"] if found else None
