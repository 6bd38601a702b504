{
  const fs = require("fs"), one = Buffer.alloc(1);
  let head = "", had = 0;
  const filled = (count) => count || process.exit();
  while (!head.endsWith("\n")) filled(fs.readSync(3, one)) && (head += one);
  const source = Buffer.alloc(Number(head.split(" ")[1]));
  while (had < source.length) had += filled(fs.readSync(3, source, had, source.length - had));
  // A context of its own has String, Promise and so on of its own, which user code cannot change.
  const driver = require("vm").runInNewContext(`(${source})`, {}, { filename: "<glovebox>" });
  driver(globalThis, require, (name, options) => import(name, options));
}
