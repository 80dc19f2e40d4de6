// `npm test`: everything, on SQLite and on a real PostgreSQL. Arguments go to Jest: `npm test -- libs/events`.
import { join } from 'node:path';
import { become, ensureBuilt, ensureInstalled, projectNode, root } from './lib.mjs';

ensureInstalled();
ensureBuilt();
const isolated = process.argv.includes('--lane=jest');
const args = process.argv.slice(2).filter((arg) => arg !== '--lane=jest');
const jest = join(root, 'node_modules', 'jest', 'bin', 'jest.js');
const workers = args.some((arg) => arg.startsWith('--maxWorkers') || arg === '-i' || arg === '-w')
  ? []
  : ['--maxWorkers=2'];
if (isolated) {
  become(projectNode(), ['--experimental-vm-modules', jest, '-c', 'jest.isolated.mjs', ...workers, ...args]);
} else {
  become(projectNode(), [jest, '-c', 'jest.config.mjs', ...workers, ...args], {
    env: {
      ...process.env,
      NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --enable-source-maps --import @swc-node/register/esm-register --conditions=@rookery/source --disable-warning=ExperimentalWarning`,
      SWC_NODE_PROJECT: join(root, 'tsconfig.check.json'),
    },
  });
}
