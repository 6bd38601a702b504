// The side of a JavaScript session that lies inside: runs what it is sent in node's own context, and tells of values
// and errors.
//
// How to read it. The bootstrap in argv reads this function from the control socket (descriptor 3) and makes it in a
// context of its own: what user code does to `Array.prototype` or `JSON` is not seen here. Code is run by V8's own
// inspector in the mode that consoles use, which knows `await` at the top and lets `const` and `class` be declared
// again. It is called through `vm`, whose `breakOnSigint` can stop a loop. Node closes descriptor 3 for children by
// itself, and `onread` hands us messages while timers and servers of earlier runs go on.
(user, require, load) => {
  "use strict";
  const fs = require("fs"), vm = require("vm"), util = require("util"), path = require("path");
  const { Session } = require("inspector"), { Socket } = require("net"), Module = require("module"), { createRequire, builtinModules } = Module;
  const { pathToFileURL } = require("url"), { promiseHooks } = require("v8"), { setImmediate } = require("timers"), { executionAsyncId } = require("async_hooks");
  const { process, Buffer, console } = user;
  const { readSync, writeSync, openSync, closeSync, fstatSync } = fs;
  const { from: bytesFrom, concat, isBuffer } = Buffer;
  const { inspect, types } = util;
  const { then } = user.Promise.prototype;
  const leave = process.reallyExit.bind(process), capture = process.setUncaughtExceptionCaptureCallback.bind(process);
  const CONTROL = 3;
  const ONE_RESULT = 16 << 20, ALL_RESULTS = 32 << 20, RESULTS = 1000, JSON_TEXT = 1 << 20, ERROR_TEXT = 60000;

  // What is said to the guest.

  const nap = new Int32Array(new SharedArrayBuffer(4));

  /** Writes all of it. Node has made the socket one that does not block, so a full one is tried again. */
  const writeAll = (number, data) => {
    for (let done = 0; done < data.length; ) {
      try {
        done += writeSync(number, data, done);
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
        Atomics.wait(nap, 0, 0, 1);
      }
    }
  };
  // An interrupt ends what runs in `goScript` at any point, ours too, and nobody can tell how much of a message was written then.
  // So only what the socket takes whole or not at all is written there. The rest waits.
  const AT_ONCE = 16 << 10;
  let canBeCut = false;
  let waiting = [];
  const send = (data) => {
    try {
      writeAll(CONTROL, data);
    } catch {
      leave(70);
    }
  };
  const say = (header, payload = bytesFrom("")) => {
    const data = concat([bytesFrom(header + "\n"), payload]);
    if (canBeCut && (waiting.length || data.length > AT_ONCE)) waiting.push(data);
    else send(data);
  };
  const cut = (text, limit) =>
    text.length <= limit
      ? text
      : `${text.slice(0, limit / 2)}\n[${text.length - limit} characters left out]\n${text.slice(-limit / 2)}`;

  let run = null; // The one under way.
  let runs = 0;

  /** Sends one representation of a value; nothing when no run is under way. */
  const put = (mime, number, kind, data) => {
    if (!run || run.results >= RESULTS) return;
    if (data.length > ONE_RESULT) {
      data = bytesFrom(`[${mime} of ${data.length} bytes left out: one result may have ${ONE_RESULT}]`);
      mime = "text/plain";
    }
    if (run.results === RESULTS - 1 || run.bytes + data.length > ALL_RESULTS - 1000) {
      run.results = RESULTS;
      data = bytesFrom("[the results after this are left out: a run may have 1000, of 32 MiB together]");
      mime = "text/plain";
    }
    run.results += 1;
    run.bytes += data.length;
    say(`result ${mime} ${number} ${kind} ${data.length}`, data);
  };

  // How values are shown.

  const KINDS = {
    html: "text/html", markdown: "text/markdown", latex: "text/latex", svg: "image/svg+xml", png: "image/png",
    jpeg: "image/jpeg", pdf: "application/pdf", json: "application/json",
  };
  const BINARY = ["image/png", "image/jpeg", "application/pdf"];
  const attempt = (act) => {
    try {
      return act();
    } catch {
      return undefined;
    }
  };

  /** What a hook gave, as bytes of this type; nothing when it is something else. Pictures may be base64. */
  const asBytes = (mime, data) =>
    attempt(() => {
      if (types.isUint8Array(data)) return bytesFrom(data);
      if (typeof data === "string") return bytesFrom(data, BINARY.includes(mime) ? "base64" : "utf8");
      return /json$/.test(mime) && data !== undefined ? bytesFrom(JSON.stringify(data)) : undefined;
    });
  const isPlain = (value) => {
    if (typeof value !== "object" || value === null || types.isProxy(value)) return false;
    const prototype = Object.getPrototypeOf(value);
    return prototype === null || prototype === user.Object.prototype || Array.isArray(value);
  };
  const plainText = (value) => {
    try {
      return cut(inspect(value), JSON_TEXT);
    } catch (error) {
      return `[a value whose inspection failed: ${attempt(() => `${error}`)}]`;
    }
  };

  /** All that a value can be shown as, by the conventions of Deno's and IJavascript's notebooks. */
  const representations = (value) => {
    const shown = new Map([["text/plain", bytesFrom(plainText(value))]]);
    const add = (mime, data) => {
      data = data === undefined || data === null ? undefined : asBytes(mime, data);
      if (data && /^[a-z0-9.+-]{1,60}\/[a-z0-9.+-]{1,60}$/.test(mime)) shown.set(mime, data);
    };
    if ((typeof value === "object" && value !== null && !types.isProxy(value)) || typeof value === "function") {
      const call = (name) => attempt(() => (typeof value[name] === "function" ? value[name]() : undefined));
      for (const name of [Symbol.for("Jupyter.display"), "_toMime", "toMime"]) {
        const bundle = call(name);
        if (bundle && typeof bundle === "object") for (const mime of Object.keys(bundle)) add(mime, bundle[mime]);
      }
      for (const kind of Object.keys(KINDS)) {
        const name = kind[0].toUpperCase() + kind.slice(1);
        for (const hook of [`_to${name}`, `to${name}`, `_repr_${kind}_`]) {
          if (!shown.has(KINDS[kind]) && hook !== "toJson") add(KINDS[kind], call(hook));
        }
      }
      if (isPlain(value) && !shown.has("application/json")) {
        const text = attempt(() => JSON.stringify(value));
        if (text && text.length <= JSON_TEXT) add("application/json", text);
      }
    }
    return shown;
  };
  const show = (value, kind) => {
    if (!run) return;
    const number = run.values++;
    for (const [mime, data] of representations(value)) put(mime, number, kind, data);
  };
  const display = (...values) => values.forEach((value) => show(value, "display"));
  for (const kind of Object.keys(KINDS)) {
    display[kind] = (data) => {
      const bytes = run && asBytes(KINDS[kind], data);
      if (bytes) put(KINDS[kind], run.values++, "display", bytes);
    };
  }

  // How errors are told.

  /** Takes our own frames, and what is below them, from the stack of an error and its causes. */
  const trimStack = (error, depth = 0) =>
    attempt(() => {
      if (!types.isNativeError(error) || depth > 50 || typeof error.stack !== "string") return;
      const lines = error.stack.split("\n");
      const ours = lines.findIndex((line) => /^\s+at .*(node:inspector:|<glovebox>)/.test(line));
      if (ours >= 0) error.stack = lines.slice(0, ours).join("\n");
      trimStack(error.cause, depth + 1);
      if (Array.isArray(error.errors)) error.errors.slice(0, 50).forEach((one) => trimStack(one, depth + 1));
    });

  /** The place of an error and its line, as node shows it above the stack. */
  const excerpt = (error, details) => {
    const text = attempt(() => `${error.stack}`) ?? "";
    let [, name, line, column] = text.match(/(<run-\d+>):(\d+):(\d+)/) ?? [];
    if (!name && details?.exception?.className === "SyntaxError") {
      [name, line, column] = [`<run-${runs}>`, details.lineNumber + 1, details.columnNumber + 1];
    }
    const source = sources.get(name)?.split("\n")[line - 1];
    return source === undefined ? "" : `${name}:${line}\n${cut(source, 500)}\n${" ".repeat(Math.min(column - 1, 250))}^\n\n`;
  };
  const writeError = (text) => {
    try {
      writeAll(2, bytesFrom(text));
    } catch {} // Nobody can be told.
  };
  const report = (error, details) => {
    trimStack(error);
    const above = excerpt(error, details);
    const isError = types.isNativeError(error);
    const name = cut(`${attempt(() => (isError ? error.name : undefined)) ?? "Uncaught"}`, 1000);
    const message = `${attempt(() => (isError ? `${error.message}` : inspect(error))) ?? ""}`;
    let shown = plainText(error);
    if (isError && shown === `[${error.stack}]`) shown = error.stack; // Inspected so when no frame is left.
    const told = `${above}${isError ? "" : "Uncaught "}${shown}\n`;
    writeError(cut(told, 4 * ERROR_TEXT));
    for (const limit of [ERROR_TEXT, ERROR_TEXT / 6]) {
      run.error = bytesFrom(JSON.stringify({ name, message: cut(message, limit), traceback: cut(told, limit) }));
      if (run.error.length <= 256 << 10) break;
    }
  };

  // How a run begins and ends.

  const sources = new Map();
  const EXIT = Symbol("process.exit"); // Thrown to leave the code that called it.
  const inspector = new Session();
  const abandoned = []; // What `keepPromise` kept of runs that ended before their code did.
  /** Whether it is too late to say how a run ended: it was interrupted, or has said so before. */
  const isOver = (of) => !of || run !== of || of.code !== undefined;
  const end = (of, code) => {
    if (isOver(of)) return;
    of.code = code & 255;
    if (!canBeCut) tellEnd(of);
  };
  const tellEnd = (of) => {
    if (of.error) say(`exception ${of.error.length}`, of.error);
    if (!of.answered) abandoned.push(of.kept);
    run = null;
    process.exitCode = undefined;
    inspector.post("Runtime.releaseObjectGroup", { objectGroup: "run" });
    say(`done ${of.code} ${of.token}`);
  };
  const fail = (of, error, details) => {
    if (isOver(of)) return;
    if (error === EXIT) return end(of, of.exit);
    try {
      report(error, details);
    } catch {
      run.error = bytesFrom(JSON.stringify({ name: "Uncaught", message: "an error that cannot be told", traceback: "" }));
    }
    end(of, 1);
  };
  const succeed = (of, value) => {
    if (isOver(of)) return;
    if (value !== undefined) {
      attempt(() => Object.defineProperty(user, "_", { value, configurable: true, writable: true }));
      show(value, "value");
    }
    end(of, of.exit ?? Number(process.exitCode ?? 0));
  };
  const interrupted = (of) => {
    if (isOver(of)) return;
    const told = "Interrupted: the run was interrupted\n";
    writeError(told);
    run.error = bytesFrom(JSON.stringify({ name: "Interrupted", message: "the run was interrupted", traceback: told }));
    end(of, 130);
  };

  /** An object of node's without what code may have added to the prototype of all objects. */
  const own = (object) => Object.assign(Object.create(null), object);

  /** The real value behind what the inspector says of it. */
  const hooks = { take: null };
  const real = (told) => {
    let taken;
    const { objectId, value, unserializableValue } = own(told);
    hooks.take = (one) => (taken = one);
    inspector.post("Runtime.callFunctionOn", {
      objectId: hooks.id, functionDeclaration: "function (value) { this.take(value) }",
      arguments: [{ objectId, value, unserializableValue }],
    });
    return taken;
  };

  /** Keeps the promise of the code itself, one of the first that it makes. The inspector ends node when the collector of
   * garbage finds it still waiting. */
  const keepPromise = (of) => {
    of.stopKeeping = promiseHooks.onInit((promise) => {
      if (of.kept.push(promise) >= 8) of.stopKeeping();
    });
  };
  const evaluate = (of, code) => {
    const expression = `${code}\n//# sourceURL=${of.name}`;
    inspector.post("Runtime.evaluate", { expression, replMode: true, objectGroup: "run" }, (refused, answer) => {
      of.answered = true;
      if (run !== of) return;
      try {
        const { result, exceptionDetails } = own(answer);
        if (refused && /terminated/.test(refused.message)) return interrupted(of);
        if (refused) return fail(of, new user.Error(refused.message));
        if (exceptionDetails) return fail(of, real(own(exceptionDetails).exception), exceptionDetails);
        const value = real(result);
        // A promise as the last value is waited for: what it does belongs to this run.
        if (!types.isPromise(value)) return succeed(of, value);
        Reflect.apply(then, value, [(settled) => succeed(of, settled), (error) => fail(of, error)]);
      } catch (error) {
        fail(of, error);
      }
    });
    of.stopKeeping();
    // What follows an `await` that has nothing to wait for runs here, where it can be stopped.
    runPending();
  };
  /** Throws what no listener of the user's code is to hear of. */
  const throwUnseen = (error) => {
    attempt(() => capture(() => capture(null)));
    throw error;
  };
  const runPending = () => process._tickCallback?.();
  /** Runs what an interrupt can stop. Gives back what was thrown. */
  const breakable = (go) => {
    let thrown = null;
    importFrom.go = go;
    hide(OURS, importFrom);
    canBeCut = true;
    try {
      goScript.runInThisContext({ breakOnSigint: true });
    } catch (error) {
      thrown = { error, wasCut: attempt(() => error.code) === "ERR_SCRIPT_EXECUTION_INTERRUPTED" };
    }
    canBeCut = false;
    for (const data of waiting.splice(0)) send(data);
    return thrown;
  };
  const start = ({ code, env, cwd, token }) => {
    const of = (run = { name: `<run-${++runs}>`, token, values: 0, results: 0, bytes: 0, kept: [] });
    sources.set(of.name, code);
    if (sources.size > 1000) sources.delete(sources.keys().next().value);
    try {
      heal();
      for (const name of Object.keys(env)) process.env[name] = env[name];
      if (cwd !== null) process.chdir(cwd);
      followDirectory();
    } catch (error) {
      return fail(of, error);
    }
    keepPromise(of);
    const context = executionAsyncId();
    const thrown = breakable(() => evaluate(of, withImports(code)));
    of.stopKeeping(); // Again, if it was done: it may have been cut.
    if (thrown?.wasCut) {
      canBeCut = true; // How it ended is known now, and told below.
      interrupted(of);
      breakable(runPending); // What its code left to be done would run later, where nothing can stop it.
    }
    if (run === of && of.code !== undefined) tellEnd(of);
    // Node's own books need to know of it: they may still stand in what was left, and are put right when an error is seen at the top.
    if (thrown?.wasCut && executionAsyncId() !== context) throwUnseen(thrown.error);
    if (thrown && !thrown.wasCut) throw thrown.error;
  };

  // What code finds there.

  const OURS = "__glovebox"; // The one name that we have among the user's globals; it is our `import()`.
  const goScript = new vm.Script(`${OURS}.go()`, { filename: "<glovebox>" });
  const hide = (name, value) => Object.defineProperty(user, name, { value, configurable: true, writable: true });
  const startedIn = process.cwd();
  const mainModule = new Module("session");
  let requireIn = null;
  const followDirectory = () => {
    const here = process.cwd();
    if (requireIn?.here === here) return;
    requireIn = { here, require: createRequire(path.join(here, "session.js")) };
    requireIn.require.main = mainModule; // So that `require.main === module` holds, as in a program.
    hide("require", requireIn.require);
    hide("module", mainModule);
    hide("exports", mainModule.exports);
  };

  /** `import()` as seen from the working directory. The loader itself looks from where the session was started. */
  const importFrom = (name, ...options) => {
    name = `${name}`;
    if (/^\.{0,2}\//.test(name)) return load(pathToFileURL(path.resolve(name)).href, ...options);
    if (process.cwd() !== startedIn && !name.startsWith("node:") && !builtinModules.includes(name)) {
      const found = attempt(() => requireIn.require.resolve(name));
      if (found) return load(pathToFileURL(found).href, ...options);
    }
    return load(name, ...options);
  };

  /** Puts our own in the place of `import`, which V8 does not take in a console. Texts, comments, regular expressions
   * and names of properties are passed by. */
  const withImports = (code) => {
    if (!/\bimport\b/.test(code)) return code;
    const skip = /\/\/[^\n]*|\/\*[^]*?\*\/|"(?:\\[^]|[^"\\])*"|'(?:\\[^]|[^'\\])*'|`(?:\\[^]|[^`\\])*`|(?<=[=(,:;!&|?{}\[\n]\s*)\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+\/|(?<![\w$.])import\b/g;
    const clause = /^import\s*(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)|\{([^}]*)\})?\s*(?:from\s*)?("[^"\n]*"|'[^'\n]*')(?:\s*(?:with|assert)\s*(\{[^}]*\}))?/;
    let made = "", from = 0;
    for (let found; (found = skip.exec(code)); ) {
      if (found[0] !== "import") continue;
      const rest = code.slice(found.index);
      made += code.slice(from, found.index);
      from = found.index + 6;
      const parts = clause.exec(rest);
      if (/^import\s*\(/.test(rest)) made += OURS;
      else if (parts) {
        const [whole, byDefault, all, some, name, options] = parts;
        const names = (some ?? "").replace(/\btype\s+/g, "").replace(/\bas\b/g, ":");
        const value = `await ${OURS}(${name}${options ? `, { with: ${options} }` : ""})`;
        const taken = [byDefault && `default: ${byDefault}`, some !== undefined && names].filter(Boolean).join(", ");
        if (all && byDefault) made += `const ${all} = ${value}, ${byDefault} = ${all}.default`;
        else if (all) made += `const ${all} = ${value}`;
        else made += byDefault || some !== undefined ? `const {${taken}} = ${value}` : value;
        made += "\n".repeat(Math.max(0, whole.split("\n").length - names.split("\n").length));
        from = skip.lastIndex = found.index + whole.length;
      } else made += "import";
    }
    return made + code.slice(from);
  };

  // Descriptors 1 and 2, which code may close: copies of them, that are opened again at the lowest free number.
  const same = (one, other) => attempt(() => fstatSync(one).ino === fstatSync(other).ino);
  const copies = [1, 2].map((number) => attempt(() => openSync(`/proc/self/fd/${number}`, "w")));
  /** A stream to a pipe writes at once; one that holds something was interrupted while it wrote, and would for ever. */
  const isUsable = (stream) =>
    typeof stream.write === "function" && stream.writable !== false && !stream.destroyed && !stream.writableLength &&
    !stream.writableCorked && !stream._writableState?.writing;
  const heal = () => {
    attempt(() => fstatSync(0)) ?? openSync("/dev/null", "r");
    copies.forEach((copy, index) => {
      const number = index + 1, name = ["stdout", "stderr"][index];
      if (copy !== undefined && !same(number, copy)) {
        attempt(() => closeSync(number));
        openSync(`/proc/self/fd/${copy}`, "w");
      }
      if (attempt(() => isUsable(process[name]))) return;
      const fresh = new Socket({ fd: number, readable: false, writable: true });
      fresh._handle?.setBlocking?.(true);
      Object.defineProperty(process, name, { value: fresh, configurable: true, enumerable: true, writable: true });
      console[`_${name}`] = fresh;
    });
  };

  hide("display", display);
  process.exit = (code) => {
    if (!run) throw EXIT;
    run.exit = Number(code ?? process.exitCode ?? 0);
    throw EXIT;
  };
  process.on("SIGINT", () => interrupted(run));
  process.on("uncaughtException", (error) => {
    if (process.listenerCount("uncaughtException") > 1) return; // The user's own takes it.
    if (run) fail(run, error);
    else if (error !== EXIT) writeError(`${plainText(error)}\n`);
  });
  process.argv.length = 1;

  inspector.connect();
  hide(OURS, hooks);
  inspector.post("Runtime.evaluate", { expression: OURS }, (_, answer) => (hooks.id = answer.result.objectId));

  // What is read from the host.

  let parts = [], have = 0, need = 0, head = 0;
  const receive = (length, buffer) => {
    parts.push(bytesFrom(buffer.subarray(0, length)));
    have += length;
    if (!need || have >= need) {
      const all = concat(parts);
      head = all.indexOf(10) + 1;
      need = head ? head + Number(all.latin1Slice(0, head).split(" ")[1]) : 0;
      parts = [all];
      if (head && have >= need) {
        parts = [all.subarray(need)];
        have -= need;
        const body = all.utf8Slice(head, need);
        need = 0;
        // Node's loop sees signals last, some of them a round later: an interrupt of the run before must not meet this one.
        setImmediate(() => setImmediate(() => start(JSON.parse(body))));
      }
    }
    return true;
  };
  const socket = new Socket({ fd: CONTROL, readable: true, writable: false, onread: { buffer: Buffer.alloc(1 << 16), callback: receive } });
  for (const event of ["end", "close", "error"]) socket.on(event, () => leave(0));
  socket.resume();
  say("ready");
}
