// glovebox run examples/hello.ts Ada
const who: string = process.argv[2] ?? "world";
console.log(`hello, ${who}! I am uid ${process.getuid!()} in ${process.cwd()}`);
