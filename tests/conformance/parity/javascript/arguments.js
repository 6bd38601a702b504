// differs: stdout: a session has no file
console.log(process.argv.length)
