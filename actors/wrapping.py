"""What a hook may make of a call that it wraps: other arguments, within what the call is and may do (TOL-13)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .building import plain, write
from .errors import UsageError
from .tools import Parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .callview import CallView


def rewritten(call: CallView, arguments: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """The arguments of a call as its hook wants them.

    They are read as a model's are. What runs is what was approved (TOL-12), and holds no resource that the call does
    not hold, for it was started beside others by what it holds (TOL-4).

    Args:
        call: as it was about to run.
        arguments: all of them, as `AroundCall.arguments` has them; those left out take their defaults.

    Returns:
        The arguments as JSON text, for what is told, and built, for the tool.

    Raises:
        UsageError: they do not fit, or the call may not run with them. Nothing was run.
    """
    tool, name = call.tool, call.block.name
    assert tool is not None, "only a call with a tool is wrapped"
    text = write(plain(tool.without_defaults(arguments)))
    parsed = tool.parse(text)
    if not isinstance(parsed, Parsed):
        raise UsageError(f"the hook around {name} changed its arguments. {parsed.text}")
    if call.asking is not None and tool.final(text) != json.loads(call.asking.arguments):
        raise UsageError(f"{name} was approved, and its hook changed the arguments after that: it was not run")
    if call.asking is None and tool.needs_approval(parsed.arguments):
        raise UsageError(f"{name} needs approval with the arguments that its hook gave it: it was not run")
    keys, exclusive = tool.keys(parsed.arguments)
    if not call.exclusive and (exclusive or not set(keys) <= set(call.keys)):
        wanted = "to run alone" if exclusive else f"the resource {', '.join(sorted(set(keys) - set(call.keys)))}"
        raise UsageError(f"{name} needs {wanted} with the arguments that its hook gave it: it was not run")
    return text, parsed.arguments
