"""How many agents live together: supervisors, trees, stores.

The names are imported when they are first asked for, so that the command has its hands on Ctrl-C before.
"""

TYPE_CHECKING = False  # as `typing` has it, without importing it

if TYPE_CHECKING:
    from actors.first import wait_any
    from actors.ref import AgentRef, Receipt
    from actors.reports import Question, Report

    from .approval import Approval
    from .front import Supervisor
    from .system import open_supervisor, run_sync

__all__ = [
    "AgentRef",
    "Approval",
    "Question",
    "Receipt",
    "Report",
    "Supervisor",
    "open_supervisor",
    "run_sync",
    "wait_any",
]


def __getattr__(name: str) -> object:
    """A name of the package, at its first use."""
    import importlib  # noqa: PLC0415 - as above

    match name:
        case "wait_any":
            module = importlib.import_module("actors.first")
        case "AgentRef" | "Receipt":
            module = importlib.import_module("actors.ref")
        case "Question" | "Report":
            module = importlib.import_module("actors.reports")
        case "Approval":
            module = importlib.import_module("supervisor.approval")
        case "Supervisor":
            module = importlib.import_module("supervisor.front")
        case "open_supervisor" | "run_sync":
            module = importlib.import_module("supervisor.system")
        case _:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
    globals()[name] = value = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return __all__
