"""Reads a log line by line, in bounded memory, and gathers the failures in it.

The lines of one failure lie apart: an allocator's dump before the error, the node of the graph after it. A failure is
therefore open for some lines, in which further facts are added to it; the next failure of the same kind within that
distance is the same one.
"""

import contextlib
import json
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from fitroom.explaining.failure import Failure, Framework, ProcessMemory
from fitroom.explaining.messages import MESSAGES, NOT_MEMORY, WORDS, MessagePattern
from fitroom.explaining.places import WORDS as PLACE_WORDS
from fitroom.explaining.places import Place, combine_places, read_place, undo_numbering
from fitroom.explaining.sizes import count_bytes, read_shape, read_size

_LONGEST_LINE = 20_000
"""Of a longer line only the beginning is read: a progress bar without line ends, a serialised model."""

_OPEN_FOR = 400
"""Lines for which facts are added to a failure. Tracebacks that chain several errors have some 200."""

_PLACES_BEFORE = 120
_MOST_FAILURES = 200
_QUOTE_LENGTH = 160

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

# What is not part of a message: which process printed it, when.
_PREFIX = re.compile(
    r"^\s*\[(?:rank)?\d+(?:,\d+)?\](?:<std\w+>)?:\s?"
    r"|^\(\w+(?: \w+)?(?: pid=\d+)[^)]*\)\s?"
    r"|^[\w.-]+\s+\|\s"
    r"|^\s*\d+: "  # srun --label
    r"|^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)\s+"  # docker logs -t, GitHub Actions
    r"|^\[pod/\S+\]\s"  # kubectl logs --prefix
    r"|^[A-Z][a-z]{2} [ \d]\d [\d:]{8} \S+ [^\s:]+: "  # journalctl
)
_CANCELLED = re.compile(r"\*\*\* (?:JOB|STEP) .*CANCELLED|TERM_(?:RUNLIMIT|OWNER)|PBS: job killed: walltime")
"""Slurm, LSF or PBS ended the job, at its time limit or because somebody asked for it. For memory they say so, too."""

_PLAIN_NUMBER = re.compile(r"\d\d:\d\d:\d\d|(?<![\d-])\d{3,}(?<!\b137)(?<!\b1455)(?!\d)|\d+(?=\.\d)|(?<=\.)\d+")
"""A number that no pattern asks for, as it asks for exit code 137 or errno 12."""

_MOST_SHAPES, _LONGEST_SHAPE = 2000, 1000
_KERAS_3 = re.compile(
    r"(?<!tf_)keras[/\\]src[/\\](?:backend|trainers|ops)[/\\]|(?:one|multi)_step_on_(?:iterator|data)"
    r"|^[IWEF]0000 00:00:\d{10}\."  # how TensorFlow's log lines begin since 2.18, which comes with Keras 3
)
_KERAS_2 = re.compile(r"\btf_keras\b")

_DOCKER = '{"log":"'
"""How a line of the files begins in which Docker keeps logs."""
_DUMP_LINE = re.compile(
    r"\b(?:InUse|Free ) at [0-9a-fx]+ of size|Chunks of size \d+ totalling|Bin \(\d+\):|Chunk at 0x"
)
_PROCESS = re.compile(r"Process (\d+) has ([\d.]+ \w+) memory in use")
_THIS_PROCESS = re.compile(r"this process has ([\d.]+ \w+) memory in use")
_OTHER_REASON = re.compile(
    r"Assertion `[^`]*` failed|device-side assert triggered"
    r"|(?:illegal memory access|illegal address|misaligned address|unspecified launch failure|no kernel image)"
    r"|Loaded runtime CuDNN library: \S+ but source was compiled with"
    r"|\blibcu(?:dnn|blas|solver|sparse|fft)\w*\.so[.\d]*: "
    r"(?:undefined symbol|cannot open shared object|version .* not found)"
)
"""What makes libraries of CUDA fail as they do where memory runs out: after an error in a kernel no call works, and a
library of the wrong version does not start."""
_OF_PYTORCH = re.compile(
    r"Of the allocated memory ([\d.]+ \w+) is allocated by PyTorch,?(?: with [\d.]+ \w+ allocated in [^,]*,)?"
    r" and ([\d.]+ \w+) is reserved by PyTorch but unallocated"
)
_STATS = {
    "limit_bytes": re.compile(r"(?:(?:^|Stats: )\s*Limit:\s+|memory in use\. )([\d.]+ ?\w*)(?:$| allowed)"),
    "in_use_bytes": re.compile(r"^\s*(?:InUse|Currently allocated\s*):\s+([\d.]+ ?\w*)"),
    "requested_bytes": re.compile(r"^\s*Requested\s*:\s+([\d.]+ ?\w*)"),
    "total_bytes": re.compile(r"^\s*Device limit\s*:\s+([\d.]+ ?\w*)"),
    "free_bytes": re.compile(r"^\s*Free \(according to CUDA\)\s*:\s+([\d.]+ ?\w*)"),
}
_REPORTED = re.compile(r"Free memory/Total memory: (\d+)/(\d+)|Memory usage: (\d+) bytes free, (\d+) bytes total")
_ALLOCATOR = re.compile(r"with allocator (\w+) on device (\d+)")
_CARD = re.compile(r"\bname: ([\w ./()-]+?)(?:, pci bus id| major: \d| computeCapability)")
_REMATERIALIZATION = re.compile(r"Can't reduce memory use below [\d.]+\w+ \((\d+) bytes\)|only reduced to ([\d.]+\w+)")
_PROGRESS = re.compile(
    r"\d+/\d+ .*(?:ETA|s/step|ms/step|it/s|s/it)|Epoch \d+/\d+|\b(?:epoch|step|iter)\w*\W{1,3}\d+", re.IGNORECASE
)
_WENT_ON = re.compile(r"\d+/\d+ .*(?:ETA|s/step|it/s|s/it)|\b(?:epoch|step|iter)\w*\W{1,3}\d+.*\bloss\W", re.IGNORECASE)
"""Progress that no source line of a traceback and no command line looks like."""

_FRAMEWORK: tuple[tuple[Framework, re.Pattern[str]], ...] = (
    # jaxlib of earlier years prints files of TensorFlow's repository, as "external/org_tensorflow/...".
    ("tensorflow", re.compile(r"(?<!org_tensorflow/)(?<!org_)tensorflow/|tensorflow\.python|/job:localhost|\[Op:")),
    ("jax", re.compile(r"\bjax(?:lib)?\b|XlaRuntimeError|JaxRuntimeError|\bJAX\b|org_tensorflow/")),
    ("torch", re.compile(r"\btorch\b|PyTorch|PYTORCH")),
)


_FACT_WORDS = (
    "traceback",
    "limit",
    "inuse",
    "requested",
    "allocated",
    "free",
    "usage",
    "name:",
    "reduce",
    "memory",
    "allocator",
    "cancelled",
    "walltime",
    "term_",
    "assert",
    "illegal",
    "misaligned",
    "launch failure",
    "cudnn library",
    ".so",
    "_step_on_",
)
_FRAMEWORK_WORDS = ("tensorflow", "jax", "torch", "xla", "keras", "/job:", "[op:")
_ANY_WORDS = tuple(dict.fromkeys((*WORDS, *PLACE_WORDS, *_FACT_WORDS, *_FRAMEWORK_WORDS)))
_PROGRESS_WORDS = ("epoch", "step", "iter", "it/s", "s/it", "eta")
ENOUGH_PROGRESS = 2


class LogReader:
    """Takes lines and gathers failures.

    >>> reader = LogReader()
    >>> reader.read(["RuntimeError: CUDA error: out of memory"])
    >>> [failure.kind for failure in reader.failures]
    ['device_out_of_memory']
    """

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.line_count = 0
        self.progress_count = 0
        """Lines that show progress of a training, outside of failures."""
        self.progress_after = 0
        """Those after the last failure."""
        self.went_on_count = 0
        """Those of them that are progress without doubt."""
        self.was_cancelled = False
        """Whether a batch system says that it ended the job."""
        self.has_warning = False
        """Whether an allocator warned of memory and went on."""
        self._card_name: str | None = None
        self.has_keras = False
        """Whether the log speaks of Keras."""
        self._has_keras_3 = False
        self._has_keras_2 = False
        self.other_reason: str | None = None
        """The line with another reason for the failure of a CUDA library than memory."""
        self._dull: set[str] = set()
        """Lines that said nothing, without their numbers: most lines of a log are alike."""
        self._needed_bytes: int | None = None
        self._recent: deque[tuple[int, Place]] = deque(maxlen=_PLACES_BEFORE)
        self._places: list[Place] = []
        self._open: Failure | None = None
        self._opened_at = 0
        self._position = 0
        self._facts: dict[str, int] = {}
        self._frameworks: dict[Framework, int] = {}

    def read(self, lines: Iterable[str]) -> None:
        """Read all lines, then close the last failure."""
        for line in lines:
            self.feed(line)
        self.close()

    def feed(self, line: str) -> None:
        """Read one line. A carriage return begins a new one, as in progress bars."""
        for part in _unpack(line[:_LONGEST_LINE]).rstrip("\r\n").split("\r"):
            self._feed(part)
        self.line_count += 1

    def close(self) -> None:
        """Fill the last failure with the places that were found for it."""
        if self._open is not None:
            place = combine_places(self._places)
            self._open.layer, self._open.operation = place.layer, place.operation
            self._open.phase = self._open.phase or place.phase
        self._open, self._places = None, []

    def failure(self) -> Failure | None:
        """The failure that ended the program: the last that is an error; None where the log has none.

        A message on the way after which training went on is none. That a process was killed says less than the error
        of another process beside it, which it was killed for, and nothing about memory where the job was cancelled.
        """
        errors = [one for one in self.failures if not one.is_hint_only]
        if self.was_cancelled:
            errors = [one for one in errors if one.kind != "killed"]
        if self.other_reason:
            errors = [one for one in errors if one.kind != "library_out_of_memory"]
        hints = [one for one in self.failures if one.is_hint_only] if not self.progress_after else []
        chosen = [one for one in errors if one.kind != "killed"] or errors or hints
        if not chosen:
            return None
        last = chosen[-1]
        if last.requested_bytes is None and last.refused_bytes:
            last.requested_bytes = last.refused_bytes[0]
        last.count = sum(one.kind == last.kind for one in self.failures)
        last.framework, last.card_name = last.framework or self._framework(), self._card_name
        if last.layer is not None and self._has_keras_3 and not self._has_keras_2 and last.framework == "tensorflow":
            last = replace(last, layer=undo_numbering(last.layer))
        return last

    def _framework(self) -> Framework | None:
        """The framework that the log speaks of most."""
        return max(self._frameworks, key=lambda name: self._frameworks[name], default=None)

    def _feed(self, line: str) -> None:
        if "\x1b" in line:
            line = _COLOUR.sub("", line)
        small = line.lower()
        if ("chunk" in small or " at " in small) and _DUMP_LINE.search(line):
            return
        self._position += 1
        if self._open is not None and self._position - self._opened_at > _OPEN_FOR:
            self.close()
        if _has_any(small, _PROGRESS_WORDS) and self._wants_progress() and _PROGRESS.search(line):
            self.progress_count += self._open is None
            self.progress_after += 1
            self.went_on_count += bool(self.failures) and _WENT_ON.search(line) is not None
        if not _has_any(small, _ANY_WORDS):
            return
        shape = _PLAIN_NUMBER.sub("0", line)
        if shape in self._dull:
            return
        while stripped := _PREFIX.match(line):
            line = line[stripped.end() :]
        if not self._read_line(line, small) and len(self._dull) < _MOST_SHAPES and len(shape) < _LONGEST_SHAPE:
            self._dull.add(shape)

    def _read_line(self, line: str, small: str) -> bool:
        """Read a line, which is also given in small letters; return whether it said anything."""
        says = "keras" in small or "exception encountered when calling" in small  # Keras's wording
        self.has_keras |= says
        self._has_keras_3 |= _KERAS_3.search(line) is not None
        self._has_keras_2 |= _KERAS_2.search(line) is not None
        if self.other_reason is None and (other := _OTHER_REASON.search(line)):
            self.other_reason, says = _quote(line, other), True
        if _CANCELLED.search(line):
            self.was_cancelled = says = True
        if line.startswith("Traceback (most recent call last)"):
            self._forget_autotuning()
            says = True
        for name, regex in _FRAMEWORK:
            if regex.search(line):
                self._frameworks[name] = self._frameworks.get(name, 0) + 1
                says = True
        if _has_any(small, PLACE_WORDS) and (place := read_place(line)):
            says = True
            self._recent.append((self._position, place))
            if self._open is not None:
                self._places.append(place)
        says |= self._read_facts(line)
        if not _has_any(small, WORDS):
            return says
        if NOT_MEMORY.search(line):
            self.has_warning |= "not a failure" in line
        elif found := _match(line):
            self._add(found, line)
            says = True
        return says

    def _forget_autotuning(self) -> None:
        """Kernels that were tried out in vain before an error was raised are not its place."""
        self._places = [place for place in self._places if place.phase != "autotuning"]
        kept = [(position, place) for position, place in self._recent if place.phase != "autotuning"]
        self._recent.clear()
        self._recent.extend(kept)

    def _wants_progress(self) -> bool:
        """Whether one more line of progress makes a difference: two are as good as a thousand."""
        counts = (self.progress_after, self.progress_count, *([self.went_on_count] if self.failures else []))
        return min(counts) < ENOUGH_PROGRESS

    def _read_facts(self, line: str) -> bool:
        """Read what the line shows of sizes and cards; return whether it may show any."""
        says = False
        for name, regex in _STATS.items():
            if (match := regex.search(line)) and (size := read_size(match[1])) is not None:
                self._note(name, size)
                says = True
        if match := _CARD.search(line):
            self._card_name, says = match[1], True
        if match := _REMATERIALIZATION.search(line):
            self._needed_bytes, says = read_size(match[1] or match[2]), True
        if match := _REPORTED.search(line):
            self._note("free_bytes", int(match[1] or match[3]))
            self._note("total_bytes", int(match[2] or match[4]))
            says = True
        if match := _ALLOCATOR.search(line):
            says = True
            if self._open is not None:
                _read_device(self._open, match[1])
        if (match := _OF_PYTORCH.search(line)) and self._open is not None:
            in_use, idle = read_size(match[1]) or 0, read_size(match[2]) or 0
            self._open.in_use_bytes, self._open.reserved_bytes = in_use, in_use + idle
        return says

    def _note(self, name: str, value: int) -> None:
        """Keep a fact for the failure that is open, or for the one that follows."""
        if self._open is not None and getattr(self._open, name) is None:
            setattr(self._open, name, value)
        elif self._open is None:
            self._facts[name] = value

    def _add(self, found: "tuple[MessagePattern, re.Match[str]]", line: str) -> None:
        failure = _failure(*found, line)
        failure.line_number, failure.quote = self.line_count + 1, _quote(line, found[1])
        before, self.progress_after, self.went_on_count = self._open, 0, 0
        if before is not None and _is_same(before, failure):
            if before.is_hint_only and not failure.is_hint_only:
                failure.merge(before)
                failure.count = before.count
                self.failures[-1] = self._open = failure
            else:
                before.merge(failure)
            self._opened_at = self._position
            return
        self.close()
        for name, value in self._facts.items():
            setattr(failure, name, value if getattr(failure, name) is None else getattr(failure, name))
        self._facts = {}
        failure.needed_bytes, self._needed_bytes = failure.needed_bytes or self._needed_bytes, None
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(failure)
        else:
            self.failures[-1] = failure
        self._open, self._opened_at = failure, self._position
        self._places = [place for position, place in self._recent if self._position - position < _PLACES_BEFORE]
        self._recent.clear()
        self._read_facts(line)


def _unpack(line: str) -> str:
    """The text of a line of Docker's own log files; other lines as they are."""
    if line.startswith(_DOCKER):
        with contextlib.suppress(ValueError, KeyError):
            return str(json.loads(line)["log"])
    return line


def _has_any(small: str, words: tuple[str, ...]) -> bool:
    return any(word in small for word in words)


def _quote(line: str, match: re.Match[str]) -> str:
    """The message within a line, without the time and the source file before it, shortened."""
    start = max(0, match.start() - _QUOTE_LENGTH // 3) if match.start() > _QUOTE_LENGTH // 2 else 0
    text = line[start:].strip() if start == 0 else line[start:].partition(" ")[2].strip()
    return f"{'... ' if start else ''}{text[:_QUOTE_LENGTH]}{' ...' if len(text) > _QUOTE_LENGTH else ''}"


def _match(line: str) -> "tuple[MessagePattern, re.Match[str]] | None":
    for message in MESSAGES:
        if (match := message.regex.search(line)) and "`" not in line[: match.start()]:  # quoted in a text
            return message, match
    return None


def _failure(message: MessagePattern, match: re.Match[str], line: str) -> Failure:
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    failure = Failure(
        kind=message.kind, framework=message.framework, device=message.device, is_hint_only=message.is_hint_only
    )
    failure.shape, failure.dtype = read_shape(groups.get("shape")), groups.get("dtype")
    counted = int(groups["bytes"]) if "bytes" in groups else count_bytes(failure.shape, failure.dtype)
    failure.requested_bytes = counted if counted is not None else read_size(groups.get("requested"))
    failure.is_rounded = counted is None and "." in groups.get("requested", "")
    for name in ("total", "in_use", "reserved", "free", "limit", "needed"):
        if name in groups:
            setattr(failure, f"{name}_bytes", read_size(groups[name]))
    if "refused" in groups:
        failure.refused_bytes = (int(groups["refused"]),)
    if "cached" in groups:  # before 1.4, without what is in use
        failure.reserved_bytes = (failure.in_use_bytes or 0) + (read_size(groups["cached"]) or 0)
    if "index" in groups:
        failure.device_index = int(groups["index"])
    if "other" in groups:
        failure.processes = (ProcessMemory(pid=-1, bytes=read_size(groups["other"]) or 0),)
    _read_device(failure, f"{groups.get('device', '')} {groups.get('allocator', '')}")
    failure.processes += _read_processes(line)
    return failure


def _read_device(failure: Failure, text: str) -> None:
    """Read the device from TensorFlow's name of it, or from the allocator's."""
    if match := re.search(r"GPU[:_](\d+)", text, re.IGNORECASE):
        failure.device, failure.device_index = "gpu", int(match[1])
    elif re.search(r"(?:\b|_)cpu|CPU:|mklcpu|cuda_host|gpu_host", text):
        failure.device, failure.kind = "host", "host_out_of_memory"


def _read_processes(line: str) -> tuple[ProcessMemory, ...]:
    listed = [ProcessMemory(pid=int(pid), bytes=read_size(size) or 0) for pid, size in _PROCESS.findall(line)]
    own = _THIS_PROCESS.search(line)
    if own:
        return (*listed, ProcessMemory(pid=None, bytes=read_size(own[1]) or 0))
    # Without that sentence the failing process is one of those listed, and which is not said.
    return tuple(listed) if len(listed) > 1 else ()


_FAMILIES = {
    "device_out_of_memory": 0,
    "library_out_of_memory": 0,
    "host_out_of_memory": 1,
    "killed": 1,
    "shared_memory": 2,
}


def _is_same(before: Failure, after: Failure) -> bool:
    """Whether a message close to another speaks of the same failure."""
    if before.device_index is not None and after.device_index is not None:
        return before.device_index == after.device_index and _FAMILIES[before.kind] == _FAMILIES[after.kind]
    if _FAMILIES[before.kind] == _FAMILIES[after.kind] or before.is_hint_only or after.is_hint_only:
        return True
    # The same request, once with the device and once without.
    sizes = (before.requested_bytes or 0, after.requested_bytes or 0)
    return after.device is None and min(sizes) > 0.99 * max(sizes) > 0
