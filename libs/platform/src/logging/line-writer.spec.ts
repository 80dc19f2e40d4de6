import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually, itWhere } from '@rookery/testing';
import { LineWriter } from './line-writer.js';

const folder = mkdtempSync(join(tmpdir(), 'rookery-lines-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const script = `
  import { LineWriter } from ${JSON.stringify(new URL('./line-writer.ts', import.meta.url).href)};
  const writer = new LineWriter(undefined, false);
  for (let i = 0; i < 5000; i++) writer.write('line ' + i + '\\n');
`;
const node = (code: string): string[] => ['--input-type=module', '-e', script + code];

describe('the writer of log lines', () => {
  it('keeps order, and makes the folders of a file', async () => {
    const file = join(folder, 'a', 'b.log');
    const writer = new LineWriter(file, false);
    for (let i = 0; i < 1000; i++) writer.write(`${i}\n`);
    await new Promise((resolve) => setTimeout(resolve, 20));
    for (let i = 1000; i < 2000; i++) writer.write(`${i}\n`);
    await writer.close();
    expect(readFileSync(file, 'utf8')).toBe(Array.from({ length: 2000 }, (_, i) => `${i}\n`).join(''));
  });

  it('loses nothing when the process ends at once', () => {
    const lines = execFileSync(process.execPath, node('process.exit(0)'), { encoding: 'utf8' }).trimEnd().split('\n');
    // In whatever order: what a thread was writing may come behind what was written at the end.
    expect(new Set(lines)).toEqual(new Set(Array.from({ length: 5000 }, (_, i) => `line ${i}`)));
    expect(lines.length).toBe(5000);
  });

  it.each(['process.exit(3)', 'setTimeout(() => { writer.write("late\\n"); process.exit(3); }, 200)'])(
    'lets the process go on and end when the reader is gone: %s',
    async (end) => {
      const child = spawn(
        process.execPath,
        node(
          `await new Promise((go) => process.stdin.once('data', go)); for (let i = 0; i < 50000; i++) writer.write('more\\n'); ${end}`,
        ),
        {
          stdio: ['pipe', 'pipe', 'ignore'],
        },
      );
      child.stdout.destroy();
      child.stdin.write('go');
      expect(await new Promise((resolve) => child.on('exit', resolve))).toBe(3);
    },
  );

  // A limit of the system on the size of files stands for a full disk: it can be lifted from outside.
  const limited = itWhere(process.platform === 'linux', 'only Linux lifts the limits of another process');
  for (const sync of [false, true])
    limited(`goes on where a file could not be written for a while (each line at once: ${String(sync)})`, async () => {
      const file = join(folder, `full-${sync}.log`);
      const code = `
        import { LineWriter } from ${JSON.stringify(new URL('./line-writer.ts', import.meta.url).href)};
        const writer = new LineWriter(${JSON.stringify(file)}, ${sync});
        for (let i = 0; i < 1000; i++) writer.write('line ' + i + '\\n');
        setTimeout(() => writer.write('later\\n'), 200);
        process.stdin.on('data', () => writer.close().then(() => process.exit(0)));`;
      const args = ['-c', 'ulimit -S -f 1; exec "$0" "$@"', process.execPath, '--input-type=module', '-e', code];
      const child = spawn('bash', args, { stdio: ['pipe', 'ignore', 'ignore'] });
      const ended = new Promise((resolve) => child.on('exit', resolve));
      await eventually(() => statSync(file, { throwIfNoEntry: false })?.size === 1024);
      await new Promise((resolve) => setTimeout(resolve, 500));
      execFileSync('prlimit', ['--pid', String(child.pid), '--fsize=unlimited:']);
      const all = `${Array.from({ length: 1000 }, (_, i) => `line ${i}\n`).join('')}later\n`;
      await eventually(() => readFileSync(file, 'utf8') === all);
      child.stdin.write('end');
      expect(await ended).toBe(0);
    });

  it('closes a file that cannot be written', async () => {
    const writer = new LineWriter('/dev/full', false);
    writer.write('line\n');
    await writer.close();
  });
});
