// Says hello from inside a sandbox: glovebox run examples/hello.js Ada
const name = process.argv[2] ?? "world";
console.log(`hello, ${name}! I am uid ${process.getuid()} in ${process.cwd()}`);
