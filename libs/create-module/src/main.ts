import { parseArgs } from 'node:util';
import { checkout, createModule, CreateModuleError } from './create-module.js';

const usage = `Usage: npm create @rookery/module FOLDER [-- --name PACKAGE] [--nest]

Writes a typed Rookery module with a test that starts a real server; with --nest as a Nest module.`;

try {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { name: { type: 'string' }, nest: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } },
  });
  const [folder, ...more] = positionals;
  if (values.help) {
    console.log(usage);
  } else if (folder === undefined || more.length > 0) {
    console.error(usage);
    process.exitCode = 2;
  } else {
    const files = createModule(folder, values.name, values.nest ? 'nest' : 'plain');
    console.log(`${files.map((file) => `  ${file}`).join('\n')}

Next:
  cd ${folder}
  npm install
  npm test`);
    const root = checkout();
    if (root !== undefined) console.log(`\nIt is tried against the packages of ${root} (see devDependencies).`);
  }
} catch (error) {
  if (!(error instanceof CreateModuleError) && !(error instanceof TypeError)) throw error;
  console.error(error.message);
  process.exitCode = error instanceof CreateModuleError ? 1 : 2;
}
