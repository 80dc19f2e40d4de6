/**
 * What a start costs and what a server that rests holds: `npm run bench -- start [--runs 15] [--rest 10] [FOLDER...]`. Each FOLDER is
 * another built tree, started in turns with this one, all by the same Node.js: figures of one run compare, others hardly do.
 */
import { freePort } from '@rookery/testing';
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { loadavg, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { stringify } from 'yaml';
import { table } from './support.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { runs: { type: 'string', default: '15' }, rest: { type: 'string', default: '10' } },
});
const runs = Number(values.runs);
const restMs = Number(values.rest) * 1000;
const trees = [process.cwd(), ...positionals.map((folder) => resolve(folder))];

/** What is read of one process. */
interface Figures {
  /** Until it says that it runs, milliseconds. */
  readonly wallMs: number;
  /** Of user and system together, until then. */
  readonly cpuMs: number;
  /** Of the process at rest, MiB: all, what is its own alone, and with shared pages counted by part. */
  readonly residentMib: number;
  readonly anonymousMib: number;
  readonly proportionalMib: number;
}

const numberIn = (text: string, key: string): number =>
  Number(new RegExp(`^${key}:\\s+(\\d+)`, 'm').exec(text)?.[1] ?? NaN);

const cpuMsOf = (pid: number): number => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * 10;
};

/** Starts the server of a tree in a folder, lets it rest, and stops it. */
async function start(tree: string, folder: string, rest: number): Promise<Figures> {
  const environment = { ...process.env };
  delete environment['NODE_OPTIONS'];
  const [program = ''] = ['bundle/main.js', 'main.js']
    .map((file) => join(tree, 'apps/homeserver/dist', file))
    .filter((file) => existsSync(file));
  const beganAt = performance.now();
  const child = spawn(process.execPath, [program, '--config', join(folder, 'homeserver.yaml')], {
    ...{ cwd: folder, env: environment, stdio: ['ignore', 'pipe', 'inherit'] },
  });
  const ended = new Promise<void>((end) => child.once('exit', () => end()));
  let output = '';
  await new Promise<void>((runsNow, reject) => {
    child.stdout?.on('data', (data: Buffer) => {
      output += data.toString();
      if (output.includes('is running as')) runsNow();
    });
    void ended.then(() => reject(new Error(`The server of ${tree} ended:\n${output}`)));
  });
  const wallMs = performance.now() - beganAt;
  const pid = child.pid ?? NaN;
  const cpuMs = cpuMsOf(pid);
  await new Promise((end) => setTimeout(end, rest));
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const mapped = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  child.kill('SIGTERM');
  await ended;
  return {
    ...{ wallMs, cpuMs },
    residentMib: numberIn(status, 'VmRSS') / 1024,
    anonymousMib: numberIn(status, 'RssAnon') / 1024,
    proportionalMib: numberIn(mapped, 'Pss') / 1024,
  };
}

const median = (numbers: readonly number[]): number => numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? NaN;

const first = new Map<string, Figures[]>(trees.map((tree) => [tree, []]));
const again = new Map<string, Figures[]>(trees.map((tree) => [tree, []]));
for (let run = 0; run < runs; run++) {
  for (const tree of trees) {
    const folder = await mkdtemp(join(tmpdir(), 'rookery-start-'));
    const port = await freePort();
    const settings = {
      ...{ server_name: 'bench.test', report_stats: false, log_level: 'info' },
      ...{ signing_key_path: join(folder, 'signing.key'), media_store_path: join(folder, 'media') },
      database: { name: 'sqlite3', args: { database: join(folder, 'homeserver.db') } },
      listeners: [
        { port, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client', 'federation'] }] },
      ],
    };
    await writeFile(join(folder, 'homeserver.yaml'), stringify(settings));
    first.get(tree)?.push(await start(tree, folder, restMs));
    again.get(tree)?.push(await start(tree, folder, 0));
    await rm(folder, { recursive: true, force: true });
  }
}
const row = (tree: string, figures: readonly Figures[], isRested: boolean): (string | number)[] => {
  const of = (key: keyof Figures): number => Math.round(median(figures.map((one) => one[key])) * 10) / 10;
  const memory = [of('residentMib'), of('anonymousMib'), of('proportionalMib')].map((mib) => mib.toFixed(1));
  return [tree, of('wallMs').toFixed(0), of('cpuMs').toFixed(0), ...(isRested ? memory : [])];
};
const heading = ['tree', 'ms', 'CPU ms'];
table(`First start, and ${restMs / 1000} s later: medians of ${runs}`, [
  [...heading, 'resident MiB', 'of its own', 'proportional'],
  ...[...first].map(([tree, figures]) => row(tree, figures, true)),
]);
table('Start of what was there before', [heading, ...[...again].map(([tree, figures]) => row(tree, figures, false))]);
console.log(
  `\nLoad of the machine: ${loadavg()
    .map((load) => load.toFixed(1))
    .join(', ')}`,
);
