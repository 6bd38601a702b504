# The side of a Python session that lies inside: runs what it is sent in `__main__`, and tells of values and errors.
#
# How to read it. The bootstrap in argv reads this source from the control socket (descriptor 3) and runs it in a
# namespace of its own, whose builtins are a copy: what user code does to `len` or `print` is not seen here. For the
# same reason everything that is needed is taken by name now and kept. What needs more than that (tracebacks, figures,
# event loops) is imported when it is first wanted, so that a session starts about as quickly as python3 does.
#
# User code runs in the main thread, and its signal handlers may raise at any line of ours while a run is "loud".
# `quiet` takes the handlers away; between it and the next `loud` the code below is not interrupted by anything.
import sys
from _ast import Expr, Expression
from _json import encode_basestring as quoted, make_scanner
from _signal import SIGINT, default_int_handler, getsignal, signal
from _thread import get_ident
from itertools import count
from os import _exit, chdir, close, dup, dup2, environ, getpid, path, read, write

import builtins

ONE_RESULT = 16 << 20
ALL_RESULTS = 32 << 20
RESULTS = 1000
PLAIN_TEXT = 1 << 20  # A longer repr is cut in the middle.
ERROR_TEXT = 60000
SOURCES = 32 << 20  # How much source is kept, so that tracebacks can show its lines.
CAUSES = 100
FRAMES = 2000  # More frames than these are cut out of the middle of a traceback.

ONLY_AST = 0x400
TOP_LEVEL_AWAIT = 0x2000 if sys.version_info >= (3, 8) else 0
IS_COROUTINE = 0x80

modules = sys.modules
main_names = modules["__main__"].__dict__
at_start = {"modules": dict(modules), "path": list(sys.path), "meta_path": list(sys.meta_path)}
owner, main_thread = getpid(), get_ident()


def private(number, place):
    """A copy of a descriptor that children do not get, at a place that code rarely closes."""
    try:
        return dup2(number, place, False)
    except OSError:
        return dup(number)


control = private(3, 250)
close(3)
own_descriptors = [(private(number, 251 + number), number) for number in (0, 1, 2)]


# What is said to the guest.

outbox = []  # Of (frame, [how much each write took]).
writing = False


def flush_outbox():
    """Writes all frames. `extend` notes what a write took in the same step of the interpreter, so when a signal handler
    raises in the middle, the next call goes on at the right byte."""
    global writing
    writing = True
    try:
        while outbox:
            frame, taken = outbox[0]
            done = sum(taken)
            if done == len(frame):
                del outbox[0]
            else:
                taken.extend(map(write, (control,), (memoryview(frame)[done:],)))
    finally:
        writing = False


def say(header, payload=b""):
    """Sends a frame. Other threads, and a signal handler that runs within a write, leave theirs to the main thread."""
    outbox.append((header.encode() + b"\n" + payload, []))
    if get_ident() == main_thread and not writing:
        flush_outbox()


class Run:
    """What is counted within one run."""

    def __init__(self, number):
        self.name = "<run %d>" % number
        self.under_way = True
        self.values = count()
        self.results = 0
        self.bytes = 0


run = Run(0)
run.under_way = False


def put(mime, number, kind, data):
    """Sends one representation of a value. The child of a fork, and a thread that is late, say nothing."""
    if getpid() != owner or not run.under_way or run.results >= RESULTS:
        return
    if len(data) > ONE_RESULT:
        note = "[%s of %d bytes left out: one result may have %d]" % (mime, len(data), ONE_RESULT)
        mime, data = "text/plain", note.encode()
    if run.results == RESULTS - 1 or run.bytes + len(data) > ALL_RESULTS - 1000:
        run.results = RESULTS
        mime, data = "text/plain", b"[the results after this are left out: a run may have 1000, of 32 MiB together]"
    run.results += 1
    run.bytes += len(data)
    say("result %s %d %s %d" % (mime, number, kind, len(data)), data)


# How values are shown.

HOOKS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_latex_", "text/latex"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_json_", "application/json"),
)
BINARY = ("image/png", "image/jpeg", "application/pdf")


def cut(text, limit):
    if len(text) <= limit:
        return text
    left_out = "\n[%d characters left out]\n" % (len(text) - limit)
    return text[: limit // 2] + left_out + text[len(text) - limit // 2 :]


def utf8(text):
    return str.encode(text, "utf-8", "replace")


def plain_text(value):
    try:
        text = repr(value)
        return utf8(cut(text, PLAIN_TEXT))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return utf8("<%s object: its repr raised %s>" % (type(value).__name__, type(error).__name__))


def call_hook(value, name, **arguments):
    """What a hook gives. It is looked for in the type, as objects exist that claim to have every attribute; and it may
    fail in any way without harm to the others."""
    try:
        if getattr(type(value), name, None) is None:
            return None
        data = getattr(value, name)(**arguments)
        return data[0] if type(data) is tuple and len(data) == 2 else data
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def as_bytes(mime, data):
    """What a hook gave, as bytes of this type; None when it is something else."""
    try:
        if mime in BINARY:
            # The images of older hooks are base64.
            return bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else library("base64").b64decode(data)
        if isinstance(data, str):
            return utf8(data)
        if mime.endswith("json"):
            return utf8(library("json").dumps(data, ensure_ascii=False, allow_nan=False))
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass
    return None


def good_mime(mime):
    """Whether a type can stand in a header."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.+-"
    parts = mime.split("/") if isinstance(mime, str) and len(mime) <= 100 else ()
    return len(parts) == 2 and all(part and all(letter in letters for letter in part) for part in parts)


def representations(value):
    """All that a value can be shown as: of (type, bytes), the plain text first."""
    kind = type(value)
    if kind in (int, float, str, bool, list, dict, tuple, set, bytes):
        return [("text/plain", plain_text(value))]
    shown = {"text/plain": plain_text(value)}
    if issubclass(kind, type):
        return list(shown.items())  # The hooks of a class are for its objects.
    if figures is not None and figures["is_figure"](value):
        figures["represent"](value, shown)
    bundle = call_hook(value, "_repr_mimebundle_", include=None, exclude=None)
    if issubclass(type(bundle), dict):
        for mime, data in bundle.items():
            data = as_bytes(mime, data) if good_mime(mime) else None
            if data is not None:
                shown[mime] = data
    for hook, mime in HOOKS:
        if mime in shown or (mime == "image/jpeg" and "image/png" in shown):
            continue
        data = call_hook(value, hook)
        data = None if data is None else as_bytes(mime, data)
        if data is not None:
            shown[mime] = data
    if "application/json" not in shown and "pandas" in modules:
        table_json(value, shown)
    return list(shown.items())


def table_json(value, shown):
    """The rows of a table of pandas as data: columns, index and data of the first thousand, and how many there are."""
    try:
        pandas = modules["pandas"]
        if issubclass(type(value), (pandas.DataFrame, pandas.Series)):
            text = value.head(1000).to_json(orient="split", date_format="iso", default_handler=str)
            if len(text) <= 1 << 20:
                shown["application/json"] = utf8(text[:-1] + ',"rows":%d}' % len(value))
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass


def show(value, kind):
    number = next(run.values)
    for mime, data in representations(value):
        put(mime, number, kind, data)


def display(*values, **options):
    """Shows values as results of the run: display(table, figure)."""
    for value in values:
        if options.get("raw") and isinstance(value, dict):
            number = next(run.values)
            for mime, data in value.items():
                data = as_bytes(mime, data) if good_mime(mime) else None
                if data is not None:
                    put(mime, number, "display", data)
        else:
            show(value, "display")


builtins.display = display


# What is imported when it is wanted.

figures = None  # The namespace of figures.py, once matplotlib is there.


def library(name):
    """A module of Python's own, not one of that name in the working directory."""
    module = modules.get(name)
    if module is not None:
        return module
    before = list(sys.path)
    here = path.realpath(".")
    sys.path[:] = [entry for entry in before if entry and path.realpath(entry) != here]
    try:
        __import__(name)
        return modules[name]
    finally:
        sys.path[:] = before


class Watcher:
    """Stands first among the finders of modules, and does something after the import of a few of them."""

    @staticmethod
    def find_spec(name, where=None, target=None):
        after = WATCHED.get(name)
        if after is None:
            return None
        for finder in list(sys.meta_path):
            spec = None if finder is Watcher else finder.find_spec(name, where, target)
            if spec is not None:
                break
        else:
            return None
        load = spec.loader.exec_module

        def load_and_then(module):
            load(module)
            try:
                after(module)
            except Exception as error:
                sys.stderr.write("glovebox: %s is not set up for the session: %r\n" % (name, error))

        if not isinstance(spec.loader, type):
            spec.loader.exec_module = load_and_then
        return spec


def after_matplotlib(module):
    global figures
    figures = {"__builtins__": own_builtins, "show": show, "utf8": utf8, "watch": WATCHED.__setitem__}
    exec(compile(figures_source, "<glovebox figures>", "exec"), figures)
    figures["set_up"](module)


def after_ipython(module):
    module.display = display


def after_linecache(module):
    for name, text in sources.items():
        module.cache[name] = (len(text), None, text.splitlines(True), name)


WATCHED = {
    "linecache": after_linecache,
    "matplotlib": after_matplotlib,
    "IPython.core.display_functions": after_ipython,
}
own_builtins = __builtins__
sys.meta_path.insert(0, Watcher)


# How errors are told.

sources = {}  # Of the runs, by the name of each.


def remember(name, text):
    sources[name] = text
    total = sum(map(len, sources.values())) if len(text) > 1000 or len(sources) % 100 == 0 else 0
    while total > SOURCES and len(sources) > 1:
        oldest = next(iter(sources))
        total -= len(sources.pop(oldest))
    linecache = modules.get("linecache")
    if linecache is not None:
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)


def strip_frames(error):
    """Takes our own frames from the front of a traceback, and the middle out of one that nobody could read."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename not in sources:
        trace = trace.tb_next
    places, place = [], trace
    while place is not None:
        places.append(place)
        place = place.tb_next
    if len(places) > FRAMES:
        places[FRAMES // 2].tb_next = places[-FRAMES // 2]
    error.__traceback__ = trace
    return max(0, len(places) - FRAMES)


def shorten_chain(error):
    """Drops what is behind a hundred errors that each came of another."""
    for _ in range(CAUSES):
        error = error.__cause__ or error.__context__
        if error is None:
            return
    error.__cause__ = error.__context__ = None


def message_of(error):
    try:
        return str.__str__(str(error))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "<exception str() failed>"


def traceback_text(error):
    left_out = strip_frames(error)
    try:
        shorten_chain(error)
        traceback = library("traceback")
        after_linecache(library("linecache"))  # Code may have emptied the cache.
        text = "".join(traceback.TracebackException(type(error), error, error.__traceback__).format())
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = "%s: %s\n" % (type(error).__name__, message_of(error))
    if left_out:
        text += "[%d frames in the middle of the traceback left out]\n" % left_out
    return cut(text, 4 * ERROR_TEXT)


def write_stderr(text):
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except KeyboardInterrupt:
        raise
    except BaseException:
        data = memoryview(utf8(text))
        while data:
            data = data[write(own_descriptors[2][0], data) :]


def report(error):
    """Writes an error where python3 would, and gives the frame that tells of it."""
    message = message_of(error)  # First, as an interrupt does not come through what formats tracebacks.
    text = traceback_text(error)
    if sys.excepthook is not sys.__excepthook__:
        # The user's own hook, which python3 would call too.
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except KeyboardInterrupt:
            raise
        except BaseException:
            write_stderr(text)
    else:
        write_stderr(text)
    return error_frame(type(error).__name__, message, text)


def error_frame(name, message, text):
    for limit in (ERROR_TEXT, ERROR_TEXT // 6):
        parts = [quoted(cut(part, limit)) for part in (name, message, text)]
        data = utf8('{"name": %s, "message": %s, "traceback": %s}' % tuple(parts))
        if len(data) <= 256 << 10:
            break
    return data


# How code is run.

SIGNALS = range(1, 65)
user_handlers = {SIGINT: default_int_handler}  # While no run is under way.
future_flags = 0
loop = None  # The event loop of all runs, once one has awaited something.


def ignore(number, frame):
    pass


def quiet():
    """Puts our handler in the place of the user's, which may raise until the last one is gone. What comes between runs is
    not kept for them: a timer that raises every millisecond would let no run come to its code."""
    while True:
        try:
            for number in SIGNALS:
                handler = getsignal(number)
                if handler is not ignore and (number == SIGINT or not (handler is None or type(handler) is int)):
                    user_handlers[number] = handler
                    signal(number, ignore)
            return
        except BaseException:
            pass


def loud():
    for number, handler in list(user_handlers.items()):
        signal(number, handler)
    user_handlers.clear()


def heal():
    """Repairs what a run may have broken and the next cannot do without."""
    for own, number in own_descriptors:
        dup2(own, number)
    sys.modules = modules
    if len(modules) < len(at_start["modules"]):
        for name, module in at_start["modules"].items():
            modules.setdefault(name, module)
    for name in ("path", "meta_path"):
        if type(getattr(sys, name, None)) is not list:
            setattr(sys, name, list(at_start[name]))
    main_names["__builtins__"] = builtins
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        stream = getattr(sys, name, None)
        try:
            usable = stream is not None and not getattr(stream, "closed", False)
        except BaseException:
            usable = False
        if not usable:
            errors = "backslashreplace" if number == 2 else "strict"
            fresh = open(number, mode, buffering=1, encoding="utf-8", errors=errors, closefd=False)
            setattr(sys, name, fresh)


def split(code, name):
    """The code compiled: all but a last expression, and that. Where there is no such, the value of all is None."""
    global future_flags
    flags = TOP_LEVEL_AWAIT | future_flags
    tree = compile(code, name, "exec", flags | ONLY_AST, True)
    last = None
    if tree.body and isinstance(tree.body[-1], Expr) and not ends_with_semicolon(code, tree.body[-1]):
        last = Expression(tree.body.pop().value)
    first = compile(tree, name, "exec", flags, True) if tree.body else None
    if first is not None and "__future__" in code:
        features = library("__future__")
        for feature in features.all_feature_names:
            future_flags |= first.co_flags & getattr(features, feature).compiler_flag
    last = last and compile(last, name, "eval", flags | future_flags, True)
    return [part for part in (first, last) if part is not None]


def ends_with_semicolon(code, statement):
    if ";" not in code:
        return False
    if not hasattr(statement, "end_lineno"):
        return code.rstrip().endswith(";")  # Python 3.7 does not know where a statement ends.
    lines = code.replace("\r\n", "\n").replace("\r", "\n").split("\n")[statement.end_lineno - 1 :]
    rest = lines[0].encode()[statement.end_col_offset :].lstrip()
    return rest.startswith(b";")


async def evaluate_all(parts):
    """The value of the last part. When one of them awaits something, all run in the loop."""
    for part in parts:
        value = eval(part, main_names)
        if part.co_flags & IS_COROUTINE:
            value = await value
    return value


def wait_for(coroutine):
    """Runs a coroutine to its end in the loop that all runs share."""
    global loop
    asyncio = library("asyncio")
    # A loop of another asyncio is there when code has emptied `sys.modules`.
    if loop is None or loop.is_closed() or not isinstance(loop, asyncio.AbstractEventLoop):
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        # The task was left where it was; it gets the chance to clean up.
        if not task.done():
            task.cancel()
            try:
                loop.run_until_complete(task)
            except asyncio.CancelledError:
                pass
        raise


def execute(request):
    """Runs the code and shows the value of its last expression."""
    for name, value in request["env"].items():
        environ[name] = value
    if request["cwd"] is not None:
        chdir(request["cwd"])
    parts = split(request["code"], run.name)
    value = None
    try:
        if any(part.co_flags & IS_COROUTINE for part in parts):
            value = wait_for(evaluate_all(parts))
        else:
            for part in parts:
                value = eval(part, main_names)
    finally:
        # Here and not in a function, which a tracer of the user's would follow and a low limit would not let in.
        sys_settrace(None)
        sys_setprofile(None)
        if sys_getrecursionlimit() < 500:
            sys_setrecursionlimit(1000)
    if value is not None:
        builtins.__ = getattr(builtins, "_", None)
        builtins._ = value
        show(value, "value")


sys_settrace, sys_setprofile = sys.settrace, sys.setprofile
sys_getrecursionlimit, sys_setrecursionlimit = sys.getrecursionlimit, sys.setrecursionlimit


def exit_code(code):
    """What python3 makes of the argument of sys.exit."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 255
    write_stderr("%s\n" % (code,))
    return 1


def flush_streams():
    """Flushes what was printed. Where code closed the descriptor, what waits for it goes to ours."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except KeyboardInterrupt:
            raise
        except BaseException:
            heal()
            try:
                getattr(sys, name).flush()
            except Exception:
                pass
    if "ctypes" in modules:
        # What libraries in C printed waits in a buffer of their own.
        try:
            modules["ctypes"].pythonapi.fflush(None)
        except Exception:
            pass


def attempt(request):
    """One run up to its end: its exit code, and the frame of its error."""
    code, frame = 0, None
    try:
        try:
            heal()
            loud()
            execute(request)
        finally:
            if figures is not None:
                figures["show_open"]()
    except SystemExit as error:
        code = exit_code(error.code)
    except BaseException as error:
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        frame = report(error)
    flush_streams()
    return code, frame


def perform(number, body):
    global run
    run = Run(number)
    outbox.clear()  # What a late thread left.
    request = scan(body, 0)[0]
    remember(run.name, request["code"])
    try:
        code, frame = attempt(request)
    except BaseException as error:
        # An interrupt while an error was told, or an error that cannot be told.
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        name = type(error).__name__
        frame = error_frame(name, "", name + "\n")
    if getpid() != owner:
        # The child of a fork came back here. It ends as python3 would, and has nothing to say on this socket.
        close(control)
        raise SystemExit(code)
    quiet()
    run.under_way = False
    if frame is not None:
        say("exception %d" % len(frame), frame)
    say("done %d %s" % (code, request["token"]))


class Scanning:
    """What the scanner of JSON wants to be told."""

    strict = False
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = None
    memo = {}


scan = make_scanner(Scanning)


def receive(before=b""):
    """The next message of the host, and what was read after it."""
    parts, have = [before], len(before)
    need = None
    while True:
        if need is None and b"\n" in parts[-1]:
            parts = [b"".join(parts)]
            header, rest = parts[0].split(b"\n", 1)
            word, length = header.decode().split(" ")
            need = len(header) + 1 + int(length)
        if need is not None and have >= need:
            data = b"".join(parts)
            return word, data[len(header) + 1 : need].decode(), data[need:]
        data = read(control, 1 << 18)
        if not data:
            _exit(0)  # The session is over.
        parts.append(data)
        have += len(data)


def serve():
    global figures_source
    for name in [name for name in main_names if not name.startswith("__")]:
        del main_names[name]  # What the bootstrap left.
    sys.argv[:] = [""]
    quiet()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    word, figures_source, rest = receive()
    say("ready")
    for number in count(1):
        word, body, rest = receive(rest)
        perform(number, body)


serve()
