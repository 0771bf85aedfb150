"""CON-6 with a process that really dies: killed in the turn of one message, time and again."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import trio

from actors import Agent, Crashed, Script, tool
from actors.messages import ReceiptState
from supervisor import open_supervisor
from tests.supervisor.promises.world import check, said, texts

if TYPE_CHECKING:
    from pathlib import Path

CHILD = """
import os, signal, sys, trio
from actors import Agent, Child, Script, call, tool
from actors.transcript import MessageRecord
from supervisor import open_supervisor

@tool(effect="pure")
async def act() -> str:
    \"\"\"Act, and take the process along.\"\"\"
    os.write(1, b"acted\\n")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"

def kid(request):
    return call("act")

kid_spec = Agent("kid", "Help.", tools=[act])
lead = Agent("lead", "Lead.", children=[Child(kid_spec, background=True)])
script = {"lead": lambda r: "ok" if r.window.responses else call("kid", task="poison"), "kid": kid}

async def main():
    async with open_supervisor(store=sys.argv[1], model=Script(script), agents=[lead]) as sup:
        if not await sup.resume():
            await sup.start(lead, "go", key="lead")
        await trio.sleep(20)

trio.run(main)
"""


def killed(path: Path) -> int:
    """Run a process over the store until it kills itself; how often its tool ran."""
    child = subprocess.run([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, timeout=60, check=False)
    assert child.returncode == -signal.SIGKILL
    return child.stdout.count(b"acted")


def test_con_6_the_third_kill_in_a_row_makes_a_dead_letter_and_tells_the_parent(tmp_path: Path) -> None:
    """Three processes die by SIGKILL in the same turn of a child; the fourth gives it up, and it can be put back."""
    path = tmp_path / "agents.db"
    assert [killed(path) for _ in range(3)] == [1, 1, 1], "it ran once in each process, and never after the third"

    @tool(effect="pure")
    async def act() -> str:
        """Act."""
        return "acted"

    kid = Agent("kid", "Help.", tools=[act])
    lead = Agent("lead", "Lead.", children=[kid])

    async def fourth() -> None:
        model = Script({"lead": lambda _: "told", "kid": lambda _: "helped"})
        async with open_supervisor(store=path, model=model, agents=[lead]) as sup:
            await sup.resume()
            ref = await sup.find("lead")
            small = await sup.find("lead/kid")
            with trio.fail_after(30):
                await small.wait_idle()
                await ref.wait_idle()
            (letter,) = await sup.dead_letters()
            assert (letter.agent, said(letter.content)) == ("lead/kid", "poison")
            assert "crashed 3 times" in letter.reason
            (told,) = [text for text in texts(await ref.transcript()) if "Report of lead/kid (failed" in text]
            assert "crashed 3 times" in told
            dead = await sup.receipt(letter.message)
            assert dead.state is ReceiptState.DEAD
            report = await dead.wait_report()
            assert isinstance(report.error, Crashed)
            await check(sup.store)
            again = await sup.put_back(letter.message, by="an operator")
            with trio.fail_after(30):
                assert (await again.wait_report()).text == "helped"
                await small.wait_idle()
                await ref.wait_idle()  # its child's report is a message: nothing of it is under way any more
            assert texts(await small.transcript())[-2:] == ["<poison", ">helped"]
            assert await sup.dead_letters() == ()
            await check(sup.store)

    trio.run(fourth)
