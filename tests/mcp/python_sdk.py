"""`glovebox mcp` as a client of another code base sees it: the official Python SDK, over every version of the protocol.

    python3 python_sdk.py PATH-OF-GLOVEBOX [FLAG...]

With flags, which are those of `glovebox mcp`, the newest version of the protocol is tried alone.

`cargo xtask test` installs the SDK and runs this. Each test is a function whose name is a sentence; it gets a client that is
connected. The last line says how many passed and failed.
"""

import asyncio
import base64
import contextlib
import inspect
import os
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zlib

import mcp.client.session as session
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

GLOVEBOX = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "glovebox"
FLAGS = sys.argv[2:]
VERSIONS = [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS][-1 if FLAGS else 0 :]

# The SDK passes on a few variables, and where Docker listens is none of them.
ENVIRONMENT = {name: os.environ[name] for name in ["DOCKER_HOST"] if name in os.environ}

READING = {"read_file", "list_files", "search_files", "read_process", "list_processes", "list_changes", "usage"}
ALL = READING | {
    "run_code", "run_command", "write_file", "edit_file", "upload", "download", "start_process", "write_process",
    "stop_process", "apply_changes", "reset_sandbox", "control_session",
}  # fmt: skip


@contextlib.asynccontextmanager
async def connected(version, *flags):
    """A client of one version of the protocol, with a data folder of its own."""
    with tempfile.TemporaryDirectory() as data:
        server = StdioServerParameters(command=GLOVEBOX, args=["mcp", "--data-dir", data, *FLAGS, *flags], env=ENVIRONMENT)
        session.LATEST_HANDSHAKE_VERSION = version
        mode = "auto" if version in MODERN_PROTOCOL_VERSIONS else "legacy"
        heard = asyncio.Queue()
        async with Client(server, mode=mode, read_timeout_seconds=60, message_handler=heard.put) as client:
            assert client.protocol_version == version, client.protocol_version
            client.heard = heard
            yield client


async def text(client, tool, **arguments):
    """The text of a call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.content[0].text


async def failure(client, tool, **arguments):
    """The text of a call that must fail."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return result.content[0].text


async def the_server_says_what_it_is_and_what_it_has(client):
    assert client.server_capabilities.tools and client.server_capabilities.resources and client.server_capabilities.prompts
    assert client.server_info.name == "glovebox" and client.server_info.version
    assert "/workspace/outputs" in client.instructions and "no network" in client.instructions
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == ALL, set(tools) ^ ALL
    for tool in tools.values():
        assert tool.description and tool.input_schema["type"] == "object", tool
        assert tool.annotations.read_only_hint == (tool.name in READING), tool
    prompts = (await client.list_prompts()).prompts
    assert [prompt.name for prompt in prompts] == ["how_to_work_here"]
    prompt = await client.get_prompt("how_to_work_here", {"task": "count the stars"})
    assert "count the stars" in prompt.messages[0].content.text


async def code_remembers_what_code_before_it_defined(client):
    await text(client, "run_code", code="answer = 41")
    assert "42\n" in await text(client, "run_code", code="print(answer + 1)")
    failed = await client.call_tool("run_code", {"code": "1 / 0"})
    assert not failed.is_error and "ZeroDivisionError" in failed.content[0].text, failed
    other = await client.call_tool("run_code", {"code": "print(answer)", "session": "other"})
    assert "NameError" in other.content[0].text, other
    listed = await client.call_tool("control_session", {"action": "list"})
    assert {one["session"] for one in listed.structured_content["sessions"]} == {"main", "other"}, listed
    assert "nothing was running" in await text(client, "control_session", action="interrupt")
    await text(client, "control_session", action="restart")
    assert "NameError" in await text(client, "run_code", code="print(answer)")


async def code_in_other_languages_remembers_too(client):
    await text(client, "run_code", language="javascript", code="let answer = 41")
    assert "42" in await text(client, "run_code", language="javascript", code="answer + 1")
    await text(client, "run_code", language="bash", code="cd /tmp; answer=41")
    assert (await text(client, "run_code", language="bash", code="pwd; echo $((answer + 1))")).startswith("/tmp\n42\n")


async def a_figure_is_an_image_and_can_be_read_as_data(client):
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6])\nprint('drawn')"
    result = await client.call_tool("run_code", {"code": code})
    images = [block for block in result.content if block.type == "image"]
    assert len(images) == 1 and images[0].mime_type == "image/png", result
    assert base64.b64decode(images[0].data).startswith(b"\x89PNG")
    assert "drawn" in result.content[0].text and '"line"' in result.content[0].text, result.content[0].text
    assert "image/png" in {one["mime"] for one in result.structured_content["results"]}
    value = await client.call_tool("run_code", {"code": "6 * 7"})
    assert value.content[0].text.startswith("42\n") and value.structured_content["results"][0]["text"] == "42", value


async def code_that_is_cancelled_is_interrupted_and_keeps_its_state(client):
    await text(client, "run_code", code="answer = 42")
    with contextlib.suppress(asyncio.TimeoutError, MCPError):
        await asyncio.wait_for(client.call_tool("run_code", {"code": "import time; time.sleep(600)"}), 1)
    assert (await text(client, "run_code", code="answer")).startswith("42\n")


async def a_command_gives_its_output_its_exit_code_and_a_document(client):
    result = await client.call_tool("run_command", {"command": "echo out; echo err >&2; exit 3"})
    assert not result.is_error
    assert result.content[0].text.startswith("out\n[stderr]\nerr\n[exit code 3"), result
    document = result.structured_content
    assert document["exit_code"] == 3 and document["outcome"]["kind"] == "exited", document
    assert document["stdout"] == "out\n" and document["stderr"] == "err\n"
    assert document["usage"]["memory_peak_bytes"] > 0 and document["denials"] == []
    assert (await text(client, "run_command", argv=["sort"], stdin="b\na\n")).startswith("a\nb\n")
    assert (await text(client, "run_command", command="pwd; echo $X", cwd="/tmp", env={"X": "1"})).startswith("/tmp\n1\n")
    late = await client.call_tool("run_command", {"command": "sleep 60", "timeout_seconds": 0.2})
    assert late.structured_content["outcome"]["kind"] == "timed_out" and "start_process" in late.content[0].text, late
    assert "command_not_found" in await failure(client, "run_command", argv=["no-such-program"])


async def files_are_written_read_edited_listed_and_searched(client):
    await text(client, "write_file", path="src/a.py", content="one = 1\ntwo = 2\nthree = 3\n")
    assert await text(client, "read_file", path="src/a.py") == "one = 1\ntwo = 2\nthree = 3\n"
    part = await client.call_tool("read_file", {"path": "src/a.py", "offset": 2, "limit": 1})
    assert part.content[0].text == "two = 2\n" and "lines 2 to 2 of 3" in part.content[1].text, part
    await text(client, "edit_file", path="src/a.py", old="two = 2", new="two = 22")
    twice = await failure(client, "edit_file", path="src/a.py", old=" = ", new="=")
    assert "3 times" in twice and "replace_all" in twice, twice
    missing = await failure(client, "edit_file", path="src/a.py", old="twoo = 22", new="")
    assert "line 2" in missing, missing
    await text(client, "write_file", path="src/deep/b.txt", content="two of them\n")
    listed = await text(client, "list_files")
    assert "src/a.py" in listed and "src/deep/" in listed, listed
    assert await text(client, "list_files", glob="*.txt") == "src/deep/b.txt  12 B"
    assert await text(client, "search_files", pattern="two") == "src/a.py:2: two = 22\nsrc/deep/b.txt:1: two of them"
    assert "src/a.py-1- one = 1" in await text(client, "search_files", pattern="two =", literal=True, context=1)
    assert "hint:" in await failure(client, "read_file", path="src")
    for tool in ["read_file", "list_files"]:
        assert "list_files shows" in await failure(client, tool, path="nowhere")
    assert "list_files shows" in await failure(client, "search_files", path="nowhere", pattern="x")


async def an_image_comes_back_as_an_image(client):
    png = tiny_png()
    await text(client, "write_file", path="plot.png", content=base64.b64encode(png).decode(), base64=True)
    result = await client.call_tool("read_file", {"path": "plot.png"})
    image = result.content[1]
    assert image.type == "image" and image.mime_type == "image/png" and base64.b64decode(image.data) == png, result
    await text(client, "write_file", path="data.bin", content=base64.b64encode(b"\0\1\2" * 10).decode(), base64=True)
    result = await client.call_tool("read_file", {"path": "data.bin"})
    assert base64.b64decode(result.content[1].resource.blob) == b"\0\1\2" * 10, result


async def long_output_comes_as_head_and_tail_with_a_link_to_the_whole(client):
    result = await client.call_tool("run_command", {"command": "seq 1 50000"})
    shown = result.content[0].text
    assert shown.startswith("1\n2\n") and "\n50000\n" in shown and "bytes left out" in shown and len(shown) < 20_000
    if client.protocol_version >= "2025-06-18":
        links = [block.uri for block in result.content if block.type == "resource_link"]
    else:
        links = [block.text.split(": ")[1].rstrip("]") for block in result.content[1:]]
    whole = await client.read_resource(str(links[0]))
    assert whole.contents[0].text == "".join(f"{n}\n" for n in range(1, 50001))


async def a_process_in_the_background_is_read_fed_and_stopped(client):
    started = await client.call_tool("start_process", {"command": "echo ready; read line; echo got $line; sleep 600"})
    name = started.structured_content["process"]
    ready = await client.call_tool("read_process", {"process": name, "until": "^ready$"})
    assert ready.structured_content["found"] is True, ready
    await text(client, "write_process", process=name, input="hello\n")
    assert "got hello" in await text(client, "read_process", process=name, until="got .*", wait_seconds=10)
    assert "running" in await text(client, "list_processes")
    stopped = await client.call_tool("stop_process", {"process": name})
    assert stopped.structured_content["state"] == "ended", stopped


async def progress_is_told_while_a_call_lasts(client):
    told = []

    async def progress(done, total, message):
        told.append((done, message))

    await client.call_tool("run_command", {"command": "echo working; sleep 1.3"}, progress_callback=progress)
    assert len(told) >= 2 and "working" in told[0][1], told
    assert told == sorted(told) and told[0][0] < told[1][0], told


async def a_call_that_is_cancelled_ends_what_it_runs(client):
    with contextlib.suppress(asyncio.TimeoutError, MCPError):
        await asyncio.wait_for(client.call_tool("run_command", {"command": "touch begun; sleep 72001"}), 1)
    for _ in range(100):
        running = await text(client, "run_command", command="cat begun && ps -e -o args | grep -c '[s]leep 72001' || true")
        if running.startswith("0\n"):
            return
    raise AssertionError(running)


async def files_and_runs_are_resources(client):
    await text(client, "write_file", path="/workspace/outputs/result.csv", content="a,b\n")
    await text(client, "run_command", command="echo one")
    resources = {str(one.uri): one for one in (await client.list_resources()).resources}
    assert "workspace:///outputs/result.csv" in resources, resources
    runs = [uri for uri in resources if uri.startswith("run://")]
    assert runs, resources
    stdout = await client.read_resource(runs[0].replace("/result", "/stdout"))
    assert stdout.contents[0].text == "one\n", stdout
    templates = {one.uri_template for one in (await client.list_resource_templates()).resource_templates}
    assert templates == {"workspace:///{+path}", "run://{run}/{part}"}, templates
    for uri in ["workspace:///not-there", "workspace:///../etc/passwd", "run://run_x/stdout", "file:///etc/passwd"]:
        try:
            raise AssertionError(await client.read_resource(uri))
        except MCPError:
            pass


async def a_client_is_told_of_a_file_that_changes(client):
    uri = "workspace:///agent_workspace/watched.txt"
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        async with client.listen(resource_subscriptions=[uri]) as subscription:
            await text(client, "run_command", command="echo 1 > other.txt; echo 1 > watched.txt")
            async for event in subscription:
                assert event.uri == uri, event
                return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        await client.subscribe_resource(uri)
        await text(client, "write_file", path="other.txt", content="1")
        await text(client, "write_file", path="watched.txt", content="1")
        told = await asyncio.wait_for(client.heard.get(), 10)
        assert told.method == "notifications/resources/updated" and str(told.params.uri) == uri, told
        await client.unsubscribe_resource(uri)


async def changes_are_listed_and_not_applied_unless_allowed(client):
    await text(client, "write_file", path="a.txt", content="a\n")
    listed = await client.call_tool("list_changes", {"diff": True})
    assert listed.structured_content["added"] == ["a.txt"] and "+a" in listed.content[0].text, listed
    assert "--allow-apply" in await failure(client, "apply_changes")
    assert "--root" in await failure(client, "upload", source="/etc/passwd")
    assert "--root" in await failure(client, "download", path="a.txt")


async def a_reset_gives_a_fresh_sandbox(client):
    await text(client, "write_file", path="a.txt", content="a\n")
    before = (await client.call_tool("usage", {})).structured_content["sandbox"]
    await text(client, "reset_sandbox")
    after = await client.call_tool("usage", {})
    assert after.structured_content["sandbox"] != before and after.structured_content["memory_limit_bytes"] > 0
    assert "nothing in" in await text(client, "list_files")


async def fifty_calls_at_one_time_are_each_answered(client):
    await text(client, "usage")
    began = time.monotonic()
    calls = [client.call_tool("run_command", {"command": f"echo {n}"}) for n in range(50)]
    results = await asyncio.gather(*calls)
    assert [result.structured_content["stdout"] for result in results] == [f"{n}\n" for n in range(50)]
    print(f"    50 calls at one time: {(time.monotonic() - began) * 1000:.0f} ms")


def tiny_png():
    """One red pixel."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


# What is the same in every version of the protocol is tried once, with the newest.
ONCE = {
    progress_is_told_while_a_call_lasts,
    fifty_calls_at_one_time_are_each_answered,
    code_in_other_languages_remembers_too,
    a_figure_is_an_image_and_can_be_read_as_data,
}


async def main():
    here = sys.modules[__name__]
    helpers = {"text", "failure", "main", "connected"}
    tests = [test for name, test in inspect.getmembers(here, inspect.iscoroutinefunction) if name not in helpers]
    tests.sort(key=lambda test: test.__code__.co_firstlineno)
    passed, failed = 0, 0
    for version in VERSIONS:
        for test in tests:
            if test in ONCE and version not in VERSIONS[-2:]:
                continue
            # The images of tests have Python without packages.
            if FLAGS and test is a_figure_is_an_image_and_can_be_read_as_data:
                continue
            name = f"{version} {test.__name__}"
            try:
                async with asyncio.timeout(60):
                    async with connected(version) as client:
                        await test(client)
                passed += 1
                print(f"ok {name}")
            except Exception:
                failed += 1
                print(f"FAILED {name}")
                print("    " + traceback.format_exc()[-1500:].replace("\n", "\n    ").rstrip())
    print(f"python sdk: {passed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main()) else 0)
