process.env.OWN = 'set'
console.log(process.env.OWN, require('child_process').execSync('echo $OWN').toString().trim())
process.chdir('/')
console.log(process.cwd())
