"""How many agents live together: supervisors, trees, stores."""

from actors.ref import AgentRef, Receipt
from actors.reports import Question, Report

from .approval import Approval
from .front import Supervisor
from .system import open_supervisor, run_sync

__all__ = ["AgentRef", "Approval", "Question", "Receipt", "Report", "Supervisor", "open_supervisor", "run_sync"]
