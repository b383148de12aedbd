"""Find which column of a trace holds what, and the unit of its times, from the columns' names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from fleetgym.capacity.traces.source import StrPath, fail
from fleetgym.files.errors import FleetgymError, UnknownNameError

SUCCESS_FLAGS = ("success", "is_success", "succeeded")  # of which a zero says that a request failed
#: What the columns may be called; capitals, spaces, dots, dashes and underscores do not matter. Dots are the
#: steps into nested JSON: what a name ends with after one counts where no whole name does. A name of a time may end
#: in its unit, as in ``arrival_ms``.
COLUMN_NAMES = {
    "time": (
        "timestamp",
        "time",
        "arrival_time",
        "arrival",
        "arrived_at",
        "start_time",
        "request_time",
        "request_start_time",
        "created_at",
        "created",
        "datetime",
        "ts",
        "start",
        "started_at",
        "starting_at",
        "time_generated",
        "logging_time",
    ),
    "input": (
        "context_tokens",
        "input_tokens",
        "prompt_tokens",
        "request_tokens",
        "num_prefill_tokens",
        "input_length",
        "input_len",
        "prompt_len",
        "num_prompt_tokens",
        "tokens_prompt",
        "input_token_count",
        "prompt_token_count",
        "llm.token_count.prompt",
        "input_tokens_count",
        "uncached_input_tokens",
    ),
    "output": (
        "generated_tokens",
        "output_tokens",
        "completion_tokens",
        "response_tokens",
        "num_decode_tokens",
        "output_length",
        "output_len",
        "num_output_tokens",
        "tokens_completion",
        "output_token_count",
        "completion_token_count",
        "llm.token_count.completion",
        "candidates_token_count",
    ),
    "label": ("workload", "class", "label"),
    "model": ("model", "model_name", "gen_ai.request.model", "model_id", "ls_model_name"),
    "count": ("num_requests", "num_model_requests", "request_count", "n_requests", "requests", "invocations"),
    "status": (
        "status",
        "status_code",
        "state",
        "http_status",
        "http_status_code",
        "response_status_code",
        "response_status",
        "response_code",
        *SUCCESS_FLAGS,
    ),
    "error": ("error", "error_message", "error_type", "error_code", "is_error", "has_error", "failed"),
    "cached": (
        "cached_tokens",
        "cached_input_tokens",
        "cache_read_input_tokens",
        "cache_read_input_token_count",
        "input_cached_tokens",
        "prompt_cache_hit_tokens",
        "num_cached_tokens",
        "gen_ai.usage.cache_read.input_tokens",
        "prompt_details.cache_read",
    ),
    "created": ("cache_creation_input_tokens", "cache_write_input_token_count"),
    "hashes": ("hash_ids",),
    "reasoning": (
        "reasoning_tokens",
        "reasoning_output_tokens",
        "thinking_tokens",
        "thoughts_token_count",
        "completion_tokens_details.reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
        "completion_details.reasoning",
    ),
    "total": ("total_tokens", "total_token_count", "tokens_total", "llm.token_count.total"),
    "answered": (
        "cache_hit",
        "is_cache_hit",
        "response_cache_hit",
        "cached",
        "is_cached",
        "cached_response",
        "cache_status",
        "from_cache",
        "x_cache",
    ),
    "sample": (
        "sample_rate",
        "sampling_rate",
        "sample_ratio",
        "sampling_ratio",
        "sampling_probability",
        "sampling_percentage",
        "sample_percentage",
        "sampling_percent",
        "sampling_fraction",
        "sample_weight",
        "sampling_weight",
        "sampling_factor",
        "weight",
    ),
    "kind": (  # of a row, where a file has others than calls of a model
        "span_kind",
        "openinference.span.kind",
        "attributes.openinference.span.kind",
        "span_attributes.type",
        "meta.kind",
        "run_type",
    ),
    "block": ("trace_block_size",),  # tokens that a hash stands for
    "id": (  # read only if the user names it: each is then counted once
        "request_id",
        "x_request_id",
        "id",
        "uuid",
        "event_id",
        "span_id",
        "generation_id",
        "completion_id",
        "response_id",
        "call_id",
        "correlation_id",
    ),
    "region": ("region", "aws_region", "cloud_region", "location", "datacenter", "availability_zone", "zone"),
}
_NEEDED = ("time", "input", "output")
#: Of several columns of these, the one is taken whose name is listed first.
_SEVERAL = (
    *("label", "model", "status", "error", "cached", "created", "reasoning", "total", "answered"),
    *("sample", "kind", "region", "id"),
)
#: Kinds of rows that call a model, of files that are of no known program.
CALLS = ("llm", "generation", "chat", "completion", "text_completion", "generate_content", "embedding")
#: Names of these may stand at the end of another name.
_NESTED = ("time", "input", "output", "model", "cached", "created", "reasoning", "total", "block")
#: What a user calls a column that shall not be read.
NO_COLUMN = "none"

#: Tokens of the block of a prompt that a hash stands for, by default as in Mooncake's traces.
HASH_BLOCK = 512

#: Nanoseconds of the units that a time may be in.
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_UNIT_WORDS = {
    **{unit: unit for unit in UNITS},
    "sec": "s",
    "seconds": "s",
    "millis": "ms",
    "milliseconds": "ms",
    "unixnano": "ns",
    "unixms": "ms",
    "nanos": "ns",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
    """A layout of a known program, told by the names of its columns."""

    name: str
    marks: tuple[str, ...]  # columns that all must be there
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)  # beside the usual names
    unit: str | None = None  # of times that are numbers
    ordered: bool = True  # by time
    hash_block: int = HASH_BLOCK  # tokens
    calls: tuple[str, ...] = ()  # kinds of rows that call a model; the others may repeat their tokens
    note: str = ""  # what a user of the format should know


#: What is not listed here is read by the names of its columns alone.
FORMATS = (
    Format(name="Azure LLM inference trace", marks=("TIMESTAMP", "ContextTokens", "GeneratedTokens")),
    Format(
        name="BurstGPT",
        marks=("Timestamp", "Request tokens", "Response tokens", "Log Type"),
        columns={"label": "", "model": "Model"},
        unit="s",
    ),
    Format(
        name="Bailian trace",  # as Mooncake's, in seconds and with shorter blocks
        marks=("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids"),
        unit="s",
        hash_block=16,
    ),
    Format(
        name="Mooncake trace",
        marks=("timestamp", "input_length", "output_length", "hash_ids"),
        unit="ms",
    ),
    Format(
        name="LiteLLM spend logs",
        marks=("startTime", "prompt_tokens", "completion_tokens", "call_type"),
        columns={"time": "startTime", "model": "model", "label": ""},
        ordered=False,
    ),
    Format(
        name="vLLM or SGLang bench result",
        marks=("input_lens", "output_lens", "start_times"),
        columns={
            "time": "start_times",
            "input": "input_lens",
            "output": "output_lens",
            "error": "errors",
            "model": "model_id",
        },
        unit="s",
        ordered=False,
    ),
    Format(
        name="aiperf profile export",
        marks=(
            "metadata.request_start_ns",
            "metrics.input_sequence_length.value",
            "metrics.output_sequence_length.value",
        ),
        columns={
            "time": "metadata.request_start_ns",
            "input": "metrics.input_sequence_length.value",
            "output": "metrics.output_sequence_length.value",
        },
        unit="ns",
        ordered=False,
    ),
    Format(
        name="inference-perf lifecycle metrics",
        marks=("start_time", "end_time", "info.input_tokens", "info.output_tokens"),
        unit="s",
        ordered=False,
    ),
    Format(
        name="Langfuse observations",
        marks=("start_time", "provided_model_name", "usage_details.input", "usage_details.output"),
        columns={
            "input": "usage_details.input",
            "output": "usage_details.output",
            "model": "provided_model_name",
            "status": "level",
            "kind": "type",
        },
        ordered=False,
        calls=("generation", "embedding"),
    ),
    Format(
        name="Langfuse observations, as JSON",
        marks=("startTime", "type", "usageDetails.input", "usageDetails.output"),
        columns={
            "input": "usageDetails.input",
            "output": "usageDetails.output",
            "total": "usageDetails.total",
            "cached": "usageDetails.cache_read_input_tokens",
            "status": "level",
            "kind": "type",
        },
        ordered=False,
        calls=("generation", "embedding"),
    ),
    Format(
        name="LangSmith runs",
        marks=("run_type", "start_time", "prompt_tokens", "completion_tokens"),
        columns={"kind": "run_type"},
        ordered=False,
        calls=("llm", "embedding"),
    ),
    Format(
        name="Bedrock invocation logs",
        marks=("modelId", "timestamp", "input.inputTokenCount", "output.outputTokenCount"),
        columns={"error": "errorCode"},
        ordered=False,
    ),
    Format(
        name="OpenTelemetry spans",
        marks=("startTimeUnixNano", "attributes.gen_ai.usage.input_tokens"),
        columns={"status": "status.code", "kind": "attributes.gen_ai.operation.name"},
        unit="ns",
        ordered=False,
        calls=("chat", "text_completion", "generate_content", "embeddings"),
    ),
    Format(
        name="OpenRouter activity",
        marks=("generation_id", "created_at", "tokens_prompt", "tokens_completion"),
        columns={"model": "model_permaslug"},
        ordered=False,
    ),
    Format(
        name="Dynamo request trace",
        marks=("schema", "event_type", "request.request_received_ms", "request.input_tokens"),
        columns={
            "time": "request.request_received_ms",
            "input": "request.input_tokens",
            "output": "request.output_tokens",
            "model": "request.model",
            "kind": "event_type",
        },
        unit="ms",
        ordered=False,
        calls=("request_end",),
    ),
    Format(
        name="Dynamo request trace",  # its compact rows
        marks=("schema", "event_type", "request.request_received_ms", "request.replay.input_length"),
        columns={
            "time": "request.request_received_ms",
            "input": "request.replay.input_length",
            "output": "request.output_tokens",
            "hashes": "request.replay.input_sequence_hashes",
            "kind": "event_type",
        },
        unit="ms",
        ordered=False,
        calls=("request_end",),
    ),
    Format(
        name="Cloudflare AI Gateway logs",
        marks=("created_at", "tokens_in", "tokens_out"),
        columns={"input": "tokens_in", "output": "tokens_out", "status": "status_code"},
        ordered=False,
    ),
    Format(
        name="Portkey logs",
        marks=("req_units", "res_units", "ai_model"),
        columns={
            "time": "created_at",
            "input": "req_units",
            "output": "res_units",
            "model": "ai_model",
            "status": "response_status_code",
        },
        ordered=False,
    ),
    Format(
        name="Helicone requests",
        marks=("request_created_at", "prompt_tokens", "completion_tokens"),
        columns={
            "time": "request_created_at",
            "model": "response_model",
            "status": "response_status",
            "answered": "cache_reference_id",
        },
        ordered=False,
    ),
    Format(
        name="Kong AI logs",
        marks=("started_at", "ai.proxy.usage.prompt_tokens", "ai.proxy.usage.completion_tokens"),
        columns={
            "time": "started_at",
            "input": "ai.proxy.usage.prompt_tokens",
            "output": "ai.proxy.usage.completion_tokens",
            "model": "ai.proxy.meta.request_model",
            "status": "response.status",
            "answered": "ai.proxy.cache.cache_status",
        },
        unit="ms",
        ordered=False,
    ),
    Format(
        name="Prometheus metrics of vLLM",
        marks=("vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
        columns={
            "count": "vllm:request_success_total",
            "input": "vllm:prompt_tokens_total",
            "output": "vllm:generation_tokens_total",
        },
        ordered=False,
    ),
    Format(
        name="Prometheus metrics of SGLang",
        marks=("sglang:num_requests_total", "sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
        columns={
            "count": "sglang:num_requests_total",
            "input": "sglang:prompt_tokens_total",
            "output": "sglang:generation_tokens_total",
        },
        ordered=False,
    ),
    Format(
        name="SageMaker data capture",
        marks=("eventMetadata.inferenceTime", "captureData.endpointOutput.data.usage.completion_tokens"),
        columns={
            "time": "eventMetadata.inferenceTime",
            "input": "captureData.endpointOutput.data.usage.prompt_tokens",
            "output": "captureData.endpointOutput.data.usage.completion_tokens",
            "model": "captureData.endpointOutput.data.model",
        },
        ordered=False,
        note="an endpoint captures the share of requests that its sampling percentage says: below 100, give --scale",
    ),
)


_UNKNOWN = Format(name="", marks=())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the columns are."""

    names: tuple[str, ...]
    columns: Mapping[str, int]  # roles, as in `COLUMN_NAMES`, to numbers of columns
    unit: str | None  # of times that are numbers, where names tell it
    format: Format  # of a known program, or without a name
    asked: frozenset[str] = frozenset()  # roles whose columns the user named

    @property
    def unused(self) -> tuple[str, ...]:
        """The columns that are not read."""
        used = {column for role, column in self.columns.items() if role != "region"}
        return tuple(name.strip() for k, name in enumerate(self.names) if k not in used)

    @property
    def has_rest(self) -> bool:
        """Whether input tokens leave out what was read from a cache, or written into it, as in Anthropic's usage."""
        cached = [self._last(role) for role in ("cached", "created") if role in self.columns]
        inputs = ("inputtokens", "inputtokencount")
        rest = ("cacheread", "cachecreation", "cachewrite")
        return bool(cached) and cached[0].startswith(rest) and self._last("input") in inputs

    def _last(self, role: str) -> str:
        """Return the last step of a name, plain."""
        return plain(self.name(role).rpartition(".")[2])

    @property
    def words(self) -> str:
        """Which columns were read, if names alone do not tell."""
        nested = any("." in self.name(role) for role in self.columns)
        if not self.format.name and not nested:
            return ""
        found = ", ".join(
            f"{role} from {self.name(role)!r}" for role in sorted(self.columns, key=_ROLES.index)
        )
        return f"{self.format.name}: {found}" if self.format.name else found

    def name(self, role: str) -> str:
        """Return how the file calls the column of a role."""
        return self.names[self.columns[role]].strip()


def plain(name: str) -> str:
    """Return a name without what does not matter in it."""
    return re.sub(r"\[UTC\]|[\s._-]", "", name, flags=re.IGNORECASE).lower()


def _unit_of(name: str) -> tuple[str, str | None]:
    """Return a name without the unit at its end, and the unit.

    Examples
    --------
    >>> _unit_of("arrival_ms"), _unit_of("startTimeUnixNano"), _unit_of("timestamps")
    (('arrival', 'ms'), ('startTime', 'ns'), ('timestamps', None))
    """
    found = re.fullmatch(rf"(.+?)[\s._-]+({'|'.join(_UNIT_WORDS)})", name.strip(), re.IGNORECASE)
    if found:
        return found[1], _UNIT_WORDS[found[2].lower()]
    found = re.fullmatch(r"(.+?)(?:UnixNano|_unix_nano)", name.strip())
    return (found[1], "ns") if found else (name, None)


_ROLES = list(COLUMN_NAMES)
_MEANINGS = {plain(name): role for role, names in COLUMN_NAMES.items() for name in names}


def expected_header() -> str:
    """Return what a header should be, for messages."""
    return (
        "expected a header such as TIMESTAMP,ContextTokens,GeneratedTokens or "
        "time,input_tokens,output_tokens[,workload]; or name the columns with "
        "--columns time=NAME,input=NAME,output=NAME[,label=NAME]"
    )


def parse_columns(text: str) -> dict[str, str]:
    """Read which columns hold what.

    Examples
    --------
    >>> parse_columns("time=startTime,label=team")
    {'time': 'startTime', 'label': 'team'}
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        role, equals, name = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise FleetgymError(
                f"cannot read the column {part!r}; expected what=name, as in time=startTime,input=prompt_tokens"
            )
        if not COLUMN_NAMES.get(role):
            raise UnknownNameError(
                "meaning of a column", role, [r for r, names in COLUMN_NAMES.items() if names]
            )
        if role in found:
            raise FleetgymError(f"the column of the {role} is given twice")
        found[role] = name
    return found


def read_layout(path: StrPath, names: Sequence[str], chosen: Mapping[str, str] | None = None) -> Layout:
    """Return the layout that the names of the columns tell, and the user's choice of names by role, which goes first.

    Raises
    ------
    DataError
        If a column is missing, or two may be meant.
    """
    plainly = [plain(name) for name in names]
    chosen = chosen or {}
    known = next((f for f in FORMATS if all(plain(mark) in plainly for mark in f.marks)), _UNKNOWN)
    given = {**known.columns, **chosen}
    where = _by_name(path, names, set(given))
    for role, name in given.items():
        if name == NO_COLUMN and role in chosen and role not in _NEEDED:
            continue
        if name in names:
            where[role] = list(names).index(name)
        elif plain(name) in plainly:
            where[role] = plainly.index(plain(name))
        elif role in chosen:
            fail(path, 1, f"no column {name!r} among {_listed(names)}")
    if "id" not in chosen:
        where.pop("id", None)
    for role in _NEEDED:
        if role not in where:
            what = "arrival time" if role == "time" else f"{role} tokens"
            usual = ", ".join(COLUMN_NAMES[role][:5])
            fail(
                path,
                1,
                f"no column holds the {what} (it may be called {usual}) among {_listed(names)}"
                f"{_hint(names, role)}; {expected_header()}",
            )
    by_format = bool(known.name) and "time" not in chosen
    return Layout(
        names=tuple(names),
        columns=where,
        unit=known.unit if by_format else _unit_of(names[where["time"]])[1],
        format=known,
        asked=frozenset(chosen),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")


#: Names of what may be meant, where no usual name is there.
_SIMILAR = {
    "time": r"(^|[^a-z])(time|timestamp|date|ts|at|start|received|created)([^a-z]|$)",
    "input": r"(?=.*tok)(^|.*[^a-z])(in|input|prompt|req|request|context|prefill)([^a-z]|$)",
    "output": r"(?=.*tok)(^|.*[^a-z])(out|output|completion|res|response|generat\w*|decode)([^a-z]|$)",
}


def _hint(names: Sequence[str], role: str) -> str:
    """Return what else to say of names that lack a column."""
    if "input_lens" in names and "start_times" not in names:
        return (
            ": a bench result without start_times does not tell when requests arrived (vLLM: --save-detailed)"
        )
    if len(names) == 1 and names[0].strip().count(" ") > 1:
        return ": the file looks like a log, not like a table"
    words = {name: re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower() for name in map(str.strip, names)}
    similar = [name for name, text in words.items() if re.search(_SIMILAR[role], text)]
    return f": is it {similar[0]!r}? Then say --columns {role}={similar[0]}" if similar else ""


def _by_name(path: StrPath, names: Sequence[str], chosen: set[str]) -> dict[str, int]:
    """Return the columns whose names are usual; for roles that are not chosen otherwise, each must be alone."""
    where = _alone(path, names, dict(enumerate(names)), chosen)
    others = chosen | set(where) | (set(COLUMN_NAMES) - set(_NESTED))
    for steps in range(1, max((name.count(".") for name in names), default=0) + 1):
        ends = {k: name.split(".", steps)[-1] for k, name in enumerate(names) if name.count(".") >= steps}
        found = _alone(path, names, ends, others)
        where, others = {**found, **where}, others | set(found)
    return where


def _alone(path: StrPath, names: Sequence[str], words: Mapping[int, str], chosen: set[str]) -> dict[str, int]:
    """Return the column of each role that one of the words names, by number of the column."""
    where: dict[str, int] = {}
    rank: dict[str, int] = {}
    for k, word in words.items():
        role = _MEANINGS.get(plain(word)) or _time_in_unit(word)
        if role is None or role in chosen:
            continue
        usual = [plain(n) for n in COLUMN_NAMES[role]]
        order = usual.index(plain(word)) if plain(word) in usual else len(usual)
        if role in where and role not in _SEVERAL:
            fail(
                path,
                1,
                f"two columns hold the {role}: {names[where[role]]!r} and {names[k]!r}; say which, as in --columns "
                f"{role}={names[k].strip()}",
            )
        if role not in where or order < rank[role]:
            where[role], rank[role] = k, order
    return where


def _time_in_unit(name: str) -> str | None:
    """Return the role of a time whose name ends in its unit."""
    base, unit = _unit_of(name)
    return "time" if unit and _MEANINGS.get(plain(base)) == "time" else None
