# npm install of a local tarball, with a program and a lifecycle script in it.
mkdir greet app
cat > greet/package.json <<'END'
{ "name": "greet", "version": "1.0.0", "main": "index.js", "bin": { "greet": "cli.js" },
  "scripts": { "postinstall": "node -e \"require('fs').writeFileSync('installed', 'by its script')\"" } }
END
echo 'module.exports = () => "hello from a tarball";' > greet/index.js
printf '#!/usr/bin/env node\nconsole.log(require("./")());\n' > greet/cli.js
export npm_config_cache=$PWD/cache npm_config_update_notifier=false
(cd greet && npm pack --silent)
cd app
echo '{ "name": "app", "version": "1.0.0" }' > package.json
npm install --silent --offline --no-audit --no-fund ../greet/greet-1.0.0.tgz
npx --offline greet
cat node_modules/greet/installed
