"""How many agents live together: supervisors, trees, stores."""

from actors.ref import AgentRef, Receipt
from actors.reports import Question, Report

from .front import Supervisor
from .system import open_supervisor, run_sync

__all__ = ["AgentRef", "Question", "Receipt", "Report", "Supervisor", "open_supervisor", "run_sync"]
