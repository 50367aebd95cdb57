"""Files of nodes: one JSON object a line."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

NODE_MEMBERS = {"level", "kind", "text"}
_LOOKED_AT = 2**20  # bytes that tell a file of nodes


@dataclass(slots=True)
class NodeFile:
    """A file of JSON lines: the nodes in it, each with its line number, and what is none."""

    name: str
    nodes: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    def line_of(self, place: int) -> int:
        """The file's line that holds the node at this 1-based place."""
        return self.lines[place - 1] if 0 < place <= len(self.lines) else place


def holds_nodes(data: bytes) -> bool:
    """Whether a file begins as one of nodes does; lines that tell nothing are passed over."""
    beginning = data[:_LOOKED_AT].removeprefix(b"\xef\xbb\xbf").lstrip()
    if not beginning.startswith(b"{"):
        return False
    for line in beginning.split(b"\n"):
        try:
            node = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(node, Mapping) and ("type" in node or node.keys() >= NODE_MEMBERS):
            return "type" not in node
    return False


def read_nodes(name: str, stream: IO[bytes]) -> NodeFile:
    """Read JSON lines; a line that is no JSON object is refused, and the others stay.

    A file that is one JSON document over many lines is refused as a whole, by its first line.
    """
    found = NodeFile(name)
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, as some editors write
        if not line.strip():
            continue
        shape = None if found.nodes or found.refused else _other_shape(line.strip())
        if shape:
            found.refused.append({"line": number, "reason": shape})
            return found
        try:
            text = line.rstrip(b"\r\n").decode("utf-8")
            node = json.loads(text, parse_constant=_refuse_constant)
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 (byte 0x{line[error.start]:02x})"
        except json.JSONDecodeError as error:
            reason = f"not JSON: {error.msg}, column {error.colno}"
        except _NoNumber as error:
            reason = f"not JSON: {error}"
        except ValueError:
            reason = "holds a number of more digits than are read"
        except RecursionError:
            reason = "is nested too deeply"
        else:
            if isinstance(node, dict):
                found.nodes.append(node)
                found.lines.append(number)
                continue
            reason = "not a JSON object"
        found.refused.append({"line": number, "reason": reason})
    return found


def _other_shape(first_line: bytes) -> str | None:
    """What a file looks like whose first line is not a whole JSON object, or None."""
    opens_array = first_line[:1] == b"[" and first_line[1:].lstrip()[:1] in (b"", b"{")
    if opens_array:
        return "one object a line is expected; this looks like an array"
    if first_line == b"{":
        return "one object a line is expected; this looks like one over several lines"
    return None


def _refuse_constant(constant: str) -> None:
    raise _NoNumber(f"{constant} is not a JSON number")


class _NoNumber(ValueError):
    """What some programs write for a number, and JSON does not have."""
