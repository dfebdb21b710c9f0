"""A record as bytes: its digest, which reveals changes, and the migrations from every older format to the present one.

`clean` and `text` make a record's text safe to show.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable

from pydantic import ValidationError
from pydantic_core import from_json

from compbench.api.schemas import RECORD_FORMAT, Record
from compbench.system.errors import CompbenchError, first_of
from compbench.system.files import Json, nesting

MAX_RECORD_BYTES = 4 * 2**20
"""A record has some kilobytes; a larger file is not a record."""
MAX_NESTING = 201
"""Greatest depth of nested lists and objects, as in pydantic's reader; the limit of Python's reader depends on the free stack."""
DIGEST = b'\n "digest": "'
"""The line with the digest begins like this.  It is unique: no string has a line break, and no nested name begins a line."""
INDENTED = 8
"""The last format with one line per nested value, in which a cell of a heat map took five lines."""
FIELDS_SINCE = 8
"""The oldest format that is read without a migration.  A new optional field does not raise this number; any other change does."""
PRESENT = re.compile(rf'\n "format": ({"|".join(map(str, range(FIELDS_SINCE, RECORD_FORMAT + 1)))}),'.encode())
"""Pattern of the format line of a record that has today's fields."""

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]+")
"""Control characters, line separators, and marks that reorder or hide text; they are removed from a record's text."""
FORMULA = ("=", "+", "-", "@", "|", "%")
"""A spreadsheet takes text for a formula if it begins with one of these characters."""


Raw = dict[str, Json]
"""A record of any format as JSON, before it is validated."""


def _with_experts_counted(raw: Raw) -> Raw:
    """Format 3 did not count the weights of stacked experts, so the number of parameters of such mixtures is not known."""
    profile, spec = raw.get("profile"), raw.get("spec")
    method = spec.get("method") if isinstance(spec, dict) else None
    if method in ("ddm", "dfd", "dcfm-a") and isinstance(profile, dict):
        raw["profile"] = {**profile, "parameters": None}
    return raw


def _with_code(raw: Raw) -> Raw:
    """Format 5 had no commit, and named the sandbox "fence".  A share of the peak above 1 is impossible and is dropped."""
    environment, profile = raw.get("environment"), raw.get("profile")
    if isinstance(environment, dict) and "fence" in environment:
        raw["environment"] = {("sandbox" if name == "fence" else name): value for name, value in environment.items()}
    if isinstance(profile, dict):
        found = {name: profile.get(name) for name in ("share_of_peak_training", "share_of_peak_sampling")}
        wrong = [name for name, share in found.items() if isinstance(share, int | float) and share > 1]
        raw["profile"] = {**profile, **dict.fromkeys([*wrong, *(["peak_flops_per_second"] if wrong else [])])}
    return raw


MIGRATIONS: dict[int, Callable[[Raw], Raw]] = {
    2: dict,  # 3, 5, 7, 8 add facts (sandbox, other processes, samples only, losses) that are not known of older records
    3: _with_experts_counted,
    4: dict,
    5: _with_code,
    6: dict,
    7: dict,
    8: dict,  # 9 has the same content in fewer lines
    9: dict,  # 10 adds the tuning study and whether the holdout is sealed, which older records leave empty
    10: dict,  # 11 adds the names of the settings that were given, which are not known of older records
    11: dict,  # 12 adds shots and the structure of hidden activations, which older records lack
    12: dict,  # 13 leaves out fields at their defaults, which is shorter by a fifth
}
"""Each function turns a record of this format into one of the next.  Format 1 had no digest and is not read any more."""


class NewerFormat(CompbenchError):
    """A newer compbench wrote the record, which may be sound."""


def parse(content: bytes) -> Record:
    """A record from its bytes, migrated to the present format.

    Raises CompbenchError with the reason if the bytes are not a record in a format that this version reads, or if the digest does
    not match.
    """
    if len(content) > MAX_RECORD_BYTES:
        raise CompbenchError(f"is {len(content)} bytes long; a record has at most {MAX_RECORD_BYTES}.")
    try:
        if (record := _of_present_fields(content)) is not None:
            return record
        raw = _loaded(content)
        number = raw.get("format") if isinstance(raw, dict) else None
        if not isinstance(raw, dict) or not isinstance(number, int):
            raise CompbenchError("is not a record: it has no format number.")
        _check_digest(content, raw, number)
        return Record.model_validate(_migrated(raw, number))
    except ValidationError as error:
        raise CompbenchError(f"is not a record: {first_of(error)}.") from error
    except ValueError as error:
        raise CompbenchError(f"is not JSON: {str(error)[:120]}.") from error


def _loaded(content: bytes) -> Json:
    """The JSON value in some bytes.  Raises CompbenchError if it is nested too deeply, and ValueError if it is not JSON."""
    try:
        return from_json(content, allow_inf_nan=False)  # a third of the time of Python's reader, and it ends at MAX_NESTING
    except ValueError:
        if nesting(content) > MAX_NESTING:
            raise CompbenchError(f"is nested deeper than {MAX_NESTING} levels, which no record is.") from None
        return json.loads(content, parse_constant=_refused)


def _refused(constant: str) -> None:
    raise ValueError(f"it holds {constant}")


def dump(record: Record) -> bytes:
    """The bytes of a record: JSON with a line for each name, sorted, and for each score, so that diffs read well.

    Fields at their defaults are left out, except in `spec`, whose SHA-256 is the run's identity.
    `digest` is the SHA-256 of all other lines.  It reveals a flipped bit or an edited score, but it is not a signature.
    """
    raw = record.model_dump(mode="json", exclude_defaults=True, exclude={"spec"})
    raw |= {"format": record.format, "spec": record.spec.model_dump(mode="json")}
    return _lines({**raw, "digest": _digest(_lines(raw))})


def _of_present_fields(content: bytes) -> Record | None:
    """The fast path, for bytes as they were written; None for anything else, which the slow path explains."""
    bare, digest = _undigested(content)
    if not digest or not PRESENT.search(bare) or _digest(bare) != digest:
        return None
    if b"NaN" in bare or b"Infinity" in bare:  # pydantic accepts NaN in settings; inside of a text such words are harmless
        return None
    try:
        record = Record.model_validate_json(bare)
    except ValidationError:
        return None
    if not FIELDS_SINCE <= record.format <= RECORD_FORMAT or "format" not in record.model_fields_set:
        return None
    return record if record.format == RECORD_FORMAT else record.model_copy(update={"format": RECORD_FORMAT})


def _check_digest(content: bytes, raw: Raw, number: int) -> None:
    """Remove the digest from an object and check it; other spacing, as from a formatter, does not make another record."""
    digest = raw.pop("digest", None)
    lines = _lines if number > INDENTED else _indented
    if number <= RECORD_FORMAT and digest != _digest(_undigested(content)[0]) and digest != _digest(lines(raw)):
        found = (
            "has no digest, which every record has since format 2" if digest is None else "was changed: its digest does not match"
        )
        raise CompbenchError(f"{found}; use the file as compbench wrote it.")


def _undigested(content: bytes) -> tuple[bytes, str]:
    """A record's bytes without the line of its digest, and the digest; "" if there is none."""
    start = content.find(DIGEST)
    end = content.find(b"\n", start + 1)
    if start < 0 or end < 0:
        return content, ""
    return content[:start] + content[end:], content[start + len(DIGEST) : end].rstrip(b'",').decode(errors="replace")


def _migrated(raw: Raw, number: int) -> Raw:
    if number > RECORD_FORMAT:
        raise NewerFormat(f"has format {number}; this compbench reads up to {RECORD_FORMAT}: update it.")
    for older in range(number, RECORD_FORMAT):
        if older not in MIGRATIONS:
            raise CompbenchError(f"has format {older}, which this compbench does not read.")
        raw = {**MIGRATIONS[older](raw), "format": older + 1}
    return raw


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _lines(raw: dict[str, Json]) -> bytes:
    """One line for each name, in order, and one for each object in a list of objects."""
    return ("{\n " + ",\n ".join(f"{json.dumps(name)}: {_line(raw[name])}" for name in sorted(raw)) + "\n}\n").encode()


def _line(value: Json) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(_line(one) for one in value) + "\n ]"
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _indented(raw: dict[str, Json]) -> bytes:
    return (json.dumps(raw, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def clean(text: str) -> str:
    """The text as one line, without control characters or marks that would reorder it."""
    safe = text.isascii() and text.isprintable()  # true for most texts, and much faster than the pattern
    return " ".join((text if safe else UNSAFE.sub(" ", text)).split())


def text(value: str) -> str:
    """The text as one line that no spreadsheet takes for a formula; a single mark, such as the unit %, is not changed."""
    value = clean(value)
    return f"'{value}" if len(value) > 1 and value.startswith(FORMULA) else value
