"""One agent, one tool, no key needed."""

import trio

from actors import Agent, Script, call, tool
from supervisor import open_supervisor


@tool
async def add(a: int, b: int = 0) -> int:
    """Add two numbers.

    Args:
        a: the first term
        b: the second
    """
    return a + b


adder = Agent("adder", "Add what you are asked to.", tools=[add])


async def main() -> None:
    """Ask, and print the answer."""
    async with open_supervisor(model=Script({"adder": [call("add", a=2, b=3), "It is five."]})) as sup:
        report = await sup.run(adder, "2 + 3?")
        print(report.text, report.usage.total_tokens, report.status)


if __name__ == "__main__":
    trio.run(main)
