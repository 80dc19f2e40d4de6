// `npm test`: everything, on SQLite and on a real PostgreSQL. Arguments go to Jest: `npm test -- libs/events`.
// `--lane=NAME` runs what is no part of that, by the settings of jest.NAME.mjs.
import { join } from 'node:path';
import { become, ensureBuilt, ensureInstalled, projectNode, root } from './lib.mjs';
import { folderInMemory } from './test-folder.mjs';

ensureInstalled();
ensureBuilt();
const laneOption = '--lane=';
const lane = process.argv.find((arg) => arg.startsWith(laneOption))?.slice(laneOption.length);
const args = process.argv.slice(2).filter((arg) => !arg.startsWith(laneOption));
const jest = join(root, 'node_modules', 'jest', 'bin', 'jest.js');
// One more than two cores: many suites wait, for processes, timeouts and leases.
const workers = args.some((arg) => arg.startsWith('--maxWorkers') || arg === '-i' || arg === '-w')
  ? []
  : ['--maxWorkers=3'];
if (lane === 'isolated') {
  become(projectNode(), ['--experimental-vm-modules', jest, '-c', 'jest.isolated.mjs', ...workers, ...args]);
} else {
  // A lane says itself where it stores: some measure that.
  const folder = lane === undefined ? folderInMemory() : undefined;
  become(projectNode(), [jest, '-c', lane ? `jest.${lane}.mjs` : 'jest.config.mjs', ...workers, ...args], {
    env: {
      ...process.env,
      ...(folder !== undefined && { ROOKERY_TEST_FOLDER: folder }),
      NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --enable-source-maps --import @swc-node/register/esm-register --conditions=@rookery/source --disable-warning=ExperimentalWarning`,
      SWC_NODE_PROJECT: join(root, 'tsconfig.check.json'),
    },
  });
}
