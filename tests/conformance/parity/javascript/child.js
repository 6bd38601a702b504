const { execSync, spawnSync } = require('child_process')
console.log(execSync('echo child').toString().trim(), spawnSync('sh', ['-c', 'exit 3']).status)
spawnSync('echo', ['direct'], { stdio: 'inherit' })
console.log('after')
