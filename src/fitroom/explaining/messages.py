"""The messages by which frameworks, libraries and systems say that memory ran out, as they print them.

A pattern names what it shows and nothing more. Its named groups fill the fields of a `Failure`: `requested`, `total`,
`in_use`, `reserved`, `free`, `limit`, `needed`, `other` are sizes with or without a unit; `bytes` is the requested size
as a plain number, `refused` what the driver did not give; `shape`, `dtype`, `index`, `device`, `allocator` speak for
themselves. Patterns are tried in order, and the first that matches a line wins, so the more specific come first.

`tests/fixtures/crash_logs` holds the messages of many versions that these patterns are tested on.
"""

import re
from dataclasses import dataclass

from fitroom.explaining.failure import DeviceKind, Framework, Kind

_SIZE = r"[\d.,]+\s?(?:[kKMGT]i?B|[KMGT]\b|[Bb]ytes|B\b)?"
_ERROR = r"(?:^|[\s'\"(])(?:[\w.]+\.)?"
"""Before the name of an error class: the start of the line, or of a quoted text; the module in front of the name."""


@dataclass(frozen=True, kw_only=True)
class MessagePattern:
    """One message: what it matches and what it says."""

    kind: Kind
    regex: re.Pattern[str]
    framework: Framework | None
    device: DeviceKind | None
    is_hint_only: bool = False
    """Whether training may go on after this message: it counts only beside an error, or where nothing else is found."""


def _patterns(
    kind: Kind, framework: Framework | None, device: DeviceKind | None, *regexes: str, is_hint_only: bool = False
) -> tuple[MessagePattern, ...]:
    """Patterns that say the same. `<SIZE>` and `<ERROR>` in a regex stand for the fragments above."""
    return tuple(
        MessagePattern(
            kind=kind,
            regex=re.compile(regex.replace("<SIZE>", _SIZE).replace("<ERROR>", _ERROR)),
            framework=framework,
            device=device,
            is_hint_only=is_hint_only,
        )
        for regex in regexes
    )


_TENSORFLOW = (
    *_patterns(
        "device_out_of_memory",
        "tensorflow",
        None,  # the device's name or the allocator's tells; on the CPU it is the host's memory
        r"OOM when allocating tensor (?:with|of) shape ?\[(?P<shape>[\d,\s]*)\]"
        r"(?: and type (?P<dtype>\w+))?(?: on (?P<device>\S+))?(?: by allocator (?P<allocator>\w+))?",
        r"SameWorkerRecvDone unable to allocate output tensor",
        r"<ERROR>ResourceExhaustedError: .*failed to allocate memory",
    ),
    *_patterns(
        "device_out_of_memory",
        "tensorflow",
        "gpu",
        r"Dst tensor is not initialized",
        r"cuMemAllocAsync failed to allocate (?P<bytes>\d+) bytes",
        r"CUDA runtime implicit initialization on GPU:(?P<index>\d+) failed\. Status: out of memory",
        r"Unexpected CUDA error: out of memory",
    ),
    *_patterns(
        "host_out_of_memory",
        "tensorflow",
        "host",
        r"(?:failed to alloc|could not allocate) (?P<bytes>\d+) bytes on host",
        r"could not allocate pinned host memory of size: (?P<bytes>\d+)",
        is_hint_only=True,
    ),
    *_patterns("host_out_of_memory", "tensorflow", "host", r"Failed to allocate memory for the batch of component \d+"),
    # A refused preallocation: TensorFlow and JAX try again with less.
    *_patterns(
        "device_out_of_memory",
        None,
        "gpu",
        r"failed to allocate <SIZE> \((?P<refused>\d+) bytes\) from device: .*OUT_OF_MEMORY",
        r"Failed to allocate device memory of <SIZE> \((?P<refused>\d+) bytes\): .*OUT_OF_MEMORY",
        is_hint_only=True,
    ),
    # The allocator's own line comes before the error, and also where the caller can do without the memory.
    *_patterns(
        "device_out_of_memory",
        None,
        None,
        r"Allocator \((?P<allocator>\w+)\) ran out of memory trying to allocate (?P<requested><SIZE>)"
        r"(?: \(rounded to (?P<bytes>\d+)\))?",
        r"Ran out of memory trying to allocate (?P<requested><SIZE>)\.\s+See logs for memory state",
        is_hint_only=True,
    ),
    *_patterns(
        "library_out_of_memory",
        "tensorflow",
        "gpu",
        r"Failed to get convolution algorithm\. This is probably because cuDNN failed to initialize",
        r"No algorithm worked!",
        r"(?:Blas|cuBlas) ?(?:xGEMM\w*|GEMM|SGEMM|GEMV)? ?launch failed",
    ),
    *_patterns(
        "library_out_of_memory",
        None,
        "gpu",
        r"(?:[Ff]ailed to create|[Cc]ould not create) (?:cudnn|cublas|cuDNN|cuBLAS|cu[Ss]olver\w*|cusparse) \w+[:,]",
        r"[Aa]ttempting to perform (?:BLAS|DNN) operation using StreamExecutor without (?:BLAS|DNN) support",
    ),
)

# XLA serves JAX, TensorFlow and PyTorch alike: which of them it was, the rest of the log tells.
_XLA = (
    *_patterns(
        "device_out_of_memory",
        None,
        "tpu",
        r"Ran out of memory in memory space (?:hbm|vmem|smem)\.? .*?Used (?P<needed><SIZE>) of (?P<limit><SIZE>) \w+",
        r"Attempting to (?:allocate|reserve) (?P<requested><SIZE>)(?: at the bottom of memory)?\. "
        r"That was not possible\. There are (?P<free><SIZE>) free",
    ),
    *_patterns(
        "device_out_of_memory",
        None,
        None,
        r"Out of memory (?:while trying to allocate|allocating) (?P<requested><SIZE>)",
    ),
    *_patterns(
        "device_out_of_memory",
        None,
        "tpu",
        r"Allocation \(size=(?P<bytes>\d+)\) would exceed memory \(size=(?P<limit>\d+)\)",
    ),
    *_patterns("device_out_of_memory", None, "gpu", r"Autotuning failed .*No valid config found"),
    *_patterns(
        "library_out_of_memory",
        None,
        "gpu",
        r"DNN library initialization failed",
        r"Failed to initialize BLAS support",
        r"operation (?:gpu|cu)(?:solver\w*|blas\w*|sparse\w*|dnn\w*)Create\(&handle\) failed",
    ),
)
_REQUEST = r"Failed to allocate request for (?P<requested><SIZE>) \((?P<bytes>\d+)B\) on device ordinal (?P<index>\d+)"
_XLA_ON_CARD = (
    # A kernel that is tried out and does not fit is left out of the choice.
    *_patterns("device_out_of_memory", None, "gpu", r"algorithm_picker\.cc.*" + _REQUEST, is_hint_only=True),
    *_patterns(
        "device_out_of_memory", None, "gpu", _REQUEST, r"Failed to load in-memory CUBIN.*CUDA_ERROR_OUT_OF_MEMORY"
    ),
)

_TORCH_SAYS = r"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate (?P<requested><SIZE>)"
_TORCH = (
    *_patterns(
        "device_out_of_memory",
        "torch",
        "gpu",
        _TORCH_SAYS + r"\.? \((?:GPU|XPU) (?P<index>\d+); (?P<total><SIZE>) total capacity; "
        r"(?P<in_use><SIZE>) already allocated; (?:(?P<free><SIZE>) free; )?"
        r"(?:(?P<reserved><SIZE>) reserved in total by PyTorch|(?P<cached><SIZE>) cached)",
        _TORCH_SAYS + r"\.? (?:GPU|XPU) (?P<index>\d+) has a total capac\w+ of (?P<total><SIZE>)"
        r"(?: of which (?P<free><SIZE>) is free)?",
        _TORCH_SAYS,
        r"Allocation on device (?P<index>\d+)? ?would exceed allowed memory",
        r"OutOfMemoryError: Allocation on device\s*$",
        r"(?:CUDA|HIP) (?:driver )?error: out of memory",
        r"cuda runtime error \(2\) ?: out of memory",
        r"Cuda failure (?:\d+ )?'out of memory'",
    ),
    *_patterns(
        "device_out_of_memory",
        "torch",
        "mps",
        r"MPS backend out of memory \(MPS allocated: (?P<in_use><SIZE>), other allocations: (?P<other><SIZE>), "
        r"max allowed: (?P<limit><SIZE>)\)\. Tried to allocate (?P<requested><SIZE>)",
        r"MPS backend out of memory",
        r"RuntimeError: Invalid buffer size: (?P<requested><SIZE>)",
    ),
    *_patterns(
        "library_out_of_memory",
        "torch",
        "gpu",
        # When the driver has refused memory, the allocator asks NVML who holds it, and NVML does not answer.
        r"NVML_SUCCESS == .*INTERNAL ASSERT FAILED at .*CUDACachingAllocator",
        r"CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)\W+when calling",
        r"cuDNN error: CUDNN_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR|ALLOC_FAILED)",
        r"Unable to find a valid cuDNN algorithm to run convolution",
        r"(?:GET|FIND) was unable to find an engine to execute this computation",
    ),
    *_patterns(
        "host_out_of_memory",
        "torch",
        "host",
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (?P<bytes>\d+) bytes",
    ),
    *_patterns(
        "shared_memory",
        "torch",
        "host",
        r"killed by signal: Bus error",
        r"insufficient shared memory \(shm\)|workers are out of shared memory",
        r"unable to \w+ (?:to )?(?:a )?(?:shared memory object|shared memory file|file) ?<?/?(?:dev/shm/)?torch_\w*",
    ),
    *_patterns(
        "shared_memory",
        None,
        "host",
        r"No space left on device.*(?:/dev/shm|/psm_|/torch_)|(?:/dev/shm|/psm_|/torch_).*No space left on device",
        r"Error while creating shared memory segment",
    ),
    *_patterns(
        "killed",
        "torch",
        "host",
        r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal: Killed|exited unexpectedly)",
    ),
)

_OTHERS_ON_CARD = _patterns(
    "device_out_of_memory",
    None,
    "gpu",
    r"CUDA device ordinal (?P<index>\d+): .*CUDA_ERROR_OUT_OF_MEMORY.*?total memory reported: (?P<total>\d+)",
    r"Out of memory allocating (?P<requested><SIZE>) \(allocated so far: (?P<in_use><SIZE>)",
    r"CUDA failure 2: out of memory ; GPU=(?P<index>\d+)",
    r"Cuda Runtime \(out of memory\)",
    r"Requested amount of GPU memory \((?P<bytes>\d+) bytes\) could not be allocated",
    r"MIOpen Error: .*Memory not available to allocate buffer: (?P<bytes>\d+)",
    r"UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    r"Failed to allocate (?P<bytes>\d+) bytes for new constant",  # XLA
    r"Free memory on device (?:cuda:(?P<index>\d+) )?\([\d.]+/(?P<total><SIZE>)\) on startup is less than desired",
)

_ANY_FRAMEWORK = (
    *_patterns(
        "device_out_of_memory",
        None,
        None,
        r"<ERROR>(?:OutOfMemoryError|ResourceExhaustedError): .*(?:out of memory|OOM|failed to allocate)",
        r"(?:RESOURCE_EXHAUSTED|Resource exhausted): .*(?:out of memory|[Ff]ailed to allocate|[Aa]llocat)",
    ),
    *_patterns(
        "device_out_of_memory",
        None,
        "gpu",
        r"Could not allocate tensor with (?P<bytes>\d+) bytes\. There is not enough GPU video memory available",
        r"cudaMalloc (?:retry )?failed: out of memory|cudaErrorMemoryAllocation",
    ),
    # ONNX Runtime, on the card or the CPU.
    *_patterns(
        "device_out_of_memory", None, None, r"Failed to allocate memory for requested buffer of size (?P<bytes>\d+)"
    ),
    *_patterns("device_out_of_memory", None, "mps", r"kIOGPUCommandBufferCallbackErrorOutOfMemory"),
    *_patterns(
        "device_out_of_memory", None, "gpu", r"CUDA_ERROR_OUT_OF_MEMORY|CUDNN_STATUS_ALLOC_FAILED", is_hint_only=True
    ),
    *_patterns(
        "library_out_of_memory",
        None,
        "gpu",
        r"CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)|CUDNN_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR)\b",
        r"CUFFT_ALLOC_FAILED|CUS\w+_STATUS_ALLOC_FAILED",
    ),
)

_HOST_LIBRARIES = _patterns(
    "host_out_of_memory",
    None,
    "host",
    r"\(-4:Insufficient memory\) Failed to allocate (?P<bytes>\d+) bytes",  # OpenCV
    r"OpenCV Error: Insufficient memory \(Failed to allocate (?P<bytes>\d+) bytes",
    r"OpenBLAS error: [Mm]emory allocation still failed",
    r"cannot allocate memory for thread-local data",
    r"libgomp: Out of memory allocating (?P<bytes>\d+) bytes",
    r"ArrowMemoryError: (?:re)?m?alloc of size (?P<bytes>\d+) failed",
    r"^memory allocation of (?P<bytes>\d+) bytes failed",  # Rust: Polars, tokenizers
    r"cannot allocate vector of (?:size|length) (?P<requested>[\d.]+ ?[KMGT]b)",  # R
)

_KILLED_ELSEWHERE = (
    *("Getötet", "Processus arrêté", "Terminado (killed)", "Ucciso", "Morto", "Unicestwiony", "Убито"),
    *("已杀死", "强制终止", "強制終了"),
)
"""What shells print for "Killed": German, French, Spanish, Italian, Portuguese, Polish, Russian, Chinese, Japanese."""

_HOST = (
    *_patterns(
        "host_out_of_memory",
        "numpy",
        "host",
        r"Unable to allocate (?:(?P<requested><SIZE>) for an )?array with shape \((?P<shape>[\d,\s]*)\) "
        r"and data type (?P<dtype>\S+)",
        r"<ERROR>_?ArrayMemoryError\b",
    ),
    *_patterns(
        "host_out_of_memory",
        "python",
        "host",
        r"^(?:E\s+)?MemoryError\b",
        r"C error: out of memory",
        r"OSError: \[(?:Errno|WinError) (?:12|1455)\]|\[Errno 12\] Cannot allocate memory",
    ),
    *_patterns(
        "host_out_of_memory", None, "host", r"std::bad_alloc", r"\b(?:fork|mmap|malloc|sbrk)\W.*Cannot allocate memory"
    ),
    *_patterns(
        "host_out_of_memory",
        "system",
        "host",
        r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process \d+",
        r"oom-kill:constraint=|invoked oom-killer|oom_reaper: reaped process",
        r"[Dd]etected \d+ oom.kill event|oom-kill event\(s\)|[Oo]ut[ -][Oo]f[ -][Mm]emory handler",
        r"task \d+: Out Of Memory|killed by YARN for exceeding memory limits|exceeded \d+% memory budget",
        r"Exceeded (?:job|step) memory limit|(?:Job|Step) \S+ exceeded memory limit \(\d+ > \d+\)",
        r"\bState: OUT_OF_MEMORY\b",
        r"TERM_MEMLIMIT: job killed",  # LSF
        r"PBS: job killed: \w*mem \d+kb exceeded limit",
        r"Job has gone over (?:cgroup )?memory limit of",  # HTCondor
        r"The node was low on resource: memory",
        r"Container killed due to memory usage",
        r"RayOutOfMemoryError: More than",
        r"\bOOMKilled\b",
        r"systemd-oomd.*Killed|Killed .* due to memory (?:pressure|used)",
        r"session crashed after using all available RAM|tried to allocate more memory than is available",
        r"killed due to the node running low on memory",
    ),
    *_patterns(
        "killed",
        "system",
        None,
        # Bare, behind the shell's "line 3: 1234", or at the end of a progress bar.
        r"^(?:.*: \w+ \d+ ?:\s+\d+ |.*[/\d].*(?:loss|ETA|it/s|%).*)?"
        rf"(?:Killed(?:: 9)?|{'|'.join(map(re.escape, _KILLED_ELSEWHERE))})(?:\s+(?:python|nohup|bash|/|\.)\S*.*)?\s*$",
        r"\b(?:[Ee]xit(?:ed|s)?(?: with)?(?: return)?[ _-]?(?:[Cc]ode|[Ss]tatus)|return_?code|[Ee]xited)(?: is)?"
        r"[\s:=(]*(?:137|-9)\b",
        r"^(?:\[\d+\][\s+-]+\d+|zsh:) killed\b",
        r"\bSIGKILL\b|[Ss]ignal 9\b|signal: [Kk]illed",
        r"[Kk]ernel (?:died|Restarting)|DeadKernelError|[Kk]ernel.{0,60} (?:has|appears to have) died",
        r"Kernel crashed while executing code",
        r"A (?:worker )?process (?:managed by the executor|in the process pool) was (?:\w+ly )?terminated",
    ),
)

MESSAGES: tuple[MessagePattern, ...] = (
    *_HOST_LIBRARIES,
    *_XLA_ON_CARD,
    *_TENSORFLOW,
    *_TORCH,
    *_OTHERS_ON_CARD,
    *_XLA,
    *_ANY_FRAMEWORK,
    *_HOST,
)

NOT_MEMORY = re.compile(
    r"""
      quota|rate.?limit|\b429\b|grpc_status|insufficient_quota
    | larger\ than\ max|too\ many\ open\ files
    | out\ of\ resource:\ shared\ memory     # of one multiprocessor, a matter of a kernel's block size
    | caller\ indicates\ that\ this\ is\ not\ a\ failure
    | java\.lang\.OutOfMemoryError          # the heap that Java was given, or threads
    | forcefully\ exiting\ via\ Signals      # torchrun ends the other processes after an error in one
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Lines that use the words of memory for something else, or for something that did no harm."""

WORDS = (
    *("alloc", "memory", "oom", "resource", "cudnn", "cublas", "cusolver", "cufft", "cusparse", "blas", "dnn"),
    *("kill", "137", "-9", "signal", "kernel", "algorithm", "dst tensor", "no space left", "engine", "died"),
    *("autotun", "terminated", " ram", "shm", "out of", "torch_", "buffer size", "create(&handle)", "low on"),
    *(word.lower() for word in _KILLED_ELSEWHERE),
)
"""One of these is in every line, in small letters, that a pattern of `MESSAGES` matches: a quick test for the many
lines that say nothing."""
