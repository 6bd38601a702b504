"""A coding agent over MCP: it mends a program until its tests pass.

    pip install mcp
    python3 examples/agents/mcp_client.py [glovebox]

Everything that a real agent has is here but the model: `ScriptedModel` stands in for it, so that the example runs anywhere and
always does the same. Put a call of your model in its place; `tools` is what it needs to know of them.
"""

import asyncio
import sys

from mcp import Client, StdioServerParameters

TASK = "median() is wrong for lists of even length. Mend it, prove it with the tests, and write a short report."

PROGRAM = '''\
def median(values):
    """The middle value; for an even number of values the mean of the two in the middle."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
'''

TESTS = '''\
import unittest
from statistics_of_ours import median

class Median(unittest.TestCase):
    def test_odd(self):
        self.assertEqual(median([3, 1, 2]), 2)
    def test_even(self):
        self.assertEqual(median([4, 1, 3, 2]), 2.5)

unittest.main()
'''

WRONG = "    return ordered[len(ordered) // 2]\n"
RIGHT = """\
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
"""


class ScriptedModel:
    """Stands in for a model: it says what one would say, step by step, and looks at what came of each step."""

    def __init__(self):
        self.steps = iter([
            ("write_file", {"path": "statistics_of_ours.py", "content": PROGRAM}, None),
            ("write_file", {"path": "tests.py", "content": TESTS}, None),
            ("run_command", {"command": "python3 tests.py"}, "FAILED (failures=1)"),
            ("search_files", {"pattern": "def median"}, "statistics_of_ours.py:1"),
            ("read_file", {"path": "statistics_of_ours.py"}, "ordered = sorted"),
            ("edit_file", {"path": "statistics_of_ours.py", "old": WRONG, "new": RIGHT}, "edited"),
            ("run_command", {"command": "python3 tests.py"}, "OK"),
            ("run_code", {"code": "from statistics_of_ours import median\nprint(median(range(10)))"}, "4.5"),
            ("write_file", {"path": "/workspace/outputs/report.md", "content": "median() is mended; 2 tests pass.\n"}, None),
            ("list_changes", {}, "/workspace/outputs/report.md"),
        ])  # fmt: skip
        self.expected = None

    def next_call(self, task, tools, heard):
        """The next call of a tool; nothing when the task is done."""
        if self.expected is not None and self.expected not in heard:
            raise SystemExit(f"the model expected {self.expected!r} and got:\n{heard}")
        tool, arguments, self.expected = next(self.steps, (None, None, None))
        if tool is not None and tool not in tools:
            raise SystemExit(f"the model wants {tool}, which is not among {tools}")
        return tool, arguments


async def main(glovebox):
    server = StdioServerParameters(command=glovebox, args=["mcp"])
    async with Client(server) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        model, heard = ScriptedModel(), ""
        while True:
            tool, arguments = model.next_call(TASK, tools, heard)
            if tool is None:
                break
            result = await client.call_tool(tool, arguments)
            heard = "\n".join(block.text for block in result.content if block.type == "text")
            print(f"{tool}: {heard.strip().splitlines()[-1]}")
        report = await client.read_resource("workspace:///outputs/report.md")
        print(f"done: {report.contents[0].text.strip()}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "glovebox"))
