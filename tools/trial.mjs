// `npm run test:trial`: all tests several times, each time in another order and beside busy processes that take the cores
// away. A test that needs a quiet machine, or another suite before it, shows itself here.
// `--runs N` (5), `--busy N` (4), `--seed S` (of the first run; the others count on). What is left over goes to Jest.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { helpWhereAsked, projectNode, root } from './lib.mjs';

helpWhereAsked(import.meta.url);
const { values, positionals } = parseArgs({
  options: {
    runs: { type: 'string', default: '5' },
    busy: { type: 'string', default: '4' },
    seed: { type: 'string', default: String(Date.now() % 100_000) },
  },
  allowPositionals: true,
});
const busy = Array.from({ length: Number(values.busy) }, () =>
  spawn(projectNode(), ['-e', 'for (;;);'], { stdio: 'ignore' }),
);
let running;
const end = (code) => {
  running?.kill();
  for (const child of busy) child.kill('SIGKILL');
  process.exit(code);
};
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => end(1));

let failed = 0;
for (let run = 0; run < Number(values.runs); run += 1) {
  const seed = String(Number(values.seed) + run);
  console.log(`Run ${run + 1} of ${values.runs}, order ${seed}, beside ${busy.length} busy processes`);
  const order = `--testSequencer=${join(root, 'test', 'setup', 'random-order.cjs')}`;
  const started = performance.now();
  running = spawn(process.execPath, [join(root, 'tools', 'test.mjs'), order, ...positionals], {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, ROOKERY_TEST_ORDER: seed },
  });
  const [status] = await once(running, 'exit');
  console.log(
    `Run ${run + 1}: ${status === 0 ? 'green' : 'RED'} after ${Math.round((performance.now() - started) / 1000)} s`,
  );
  if (status !== 0) failed += 1;
}
console.log(failed === 0 ? 'All runs green' : `${failed} of ${values.runs} runs red`);
end(failed === 0 ? 0 : 1);
