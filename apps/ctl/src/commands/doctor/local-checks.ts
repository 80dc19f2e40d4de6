import { X509Certificate } from 'node:crypto';
import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import { type Db, hasTable, planUpgrade, tablesAmong } from '@rookery/database';
import { type Config, SystemClock } from '@rookery/platform';
import { inBytes } from '../common.js';
import { placeOf, readingDatabase, readingStateDatabase } from '../database-at.js';
import { checkModules } from '../module-check.js';
import { type Check, error, type Finding, ok, warning } from './finding.js';

const dayMs = 86_400_000;
const warnBeforeDays = 14;
const littleBytes = 100 * 2 ** 20;
const littleShare = 0.05;
const clockSkewMs = 30_000;

/** Schema, work in the background, what is known to break, the database's clock. */
export const databaseCheck: Check = {
  name: 'database',
  run: async (config) => [...(await mainDatabase(config)), ...(await stateDatabase(config))],
};

/** What is wrong with edges of state groups. */
async function edgesIn(db: Db): Promise<Finding[]> {
  const { stateStore } = await import('@rookery/rooms');
  if (!(await hasTable(db, 'state_group_edges'))) return [];
  if (!(await stateStore.edges.lackIndex(db))) return [];
  return [
    error(
      'rows of state_group_edges may be doubled: its unique index is missing',
      'Start the server: it mends that in the background.',
    ),
  ];
}

/** Whether the state is where the settings say, and what is to do there. */
async function stateDatabase(config: Config): Promise<readonly Finding[]> {
  const { stateMigrations } = await import('@rookery/homeserver');
  const { stateStore } = await import('@rookery/rooms');
  const fits = async (main: Db | undefined, state?: Db): Promise<Finding[]> => {
    const problem =
      main &&
      (await stateStore.problem({ main, state: state ?? main, isSplit: state !== undefined }, config.serverName));
    return problem === undefined ? [] : [error(problem)];
  };
  const found = await readingStateDatabase(config, async (db, options) => {
    if (db === undefined)
      return [warning(`there is no database of state ${placeOf(options)}`, 'The first start makes it.')];
    const plan = await planUpgrade(db, stateMigrations);
    const place = ok(`state: ${placeOf(options)} can be reached, schema version ${plan.from ?? 'none yet'}`);
    return [place, ...(await edgesIn(db)), ...(await readingDatabase(config, (main) => fits(main, db)))];
  });
  return found ?? readingDatabase(config, (main) => fits(main));
}

const mainDatabase = (config: Config): Promise<readonly Finding[]> =>
  readingDatabase(config, async (db, options) => {
    if (db === undefined) return [warning(`there is no database ${placeOf(options)}`, 'The first start makes it.')];
    const { migrations } = await import('@rookery/homeserver');
    const plan = await planUpgrade(db, migrations);
    const findings: Finding[] = [ok(`${placeOf(options)} can be reached, schema version ${plan.from ?? 'none yet'}`)];
    if (plan.from !== undefined && plan.steps.length > 0)
      findings.push(
        warning(
          `the next start upgrades it (${plan.steps.length} steps)`,
          'rookery upgrade check says what that takes.',
        ),
      );
    if (plan.running.length > 0)
      findings.push(
        warning(
          `work in the background is not finished: ${plan.running.join(', ')}`,
          'It goes on while the server runs; the log says how far it is.',
        ),
      );
    const tables = await tablesAmong(db, ['pushers', 'application_services_txns']);
    findings.push(...(await edgesIn(db)));
    if (tables.has('application_services_txns') && plan.steps.length === 0) {
      const { sequenceProblem } = await import('@rookery/appservices');
      const problem = await sequenceProblem(db);
      if (problem !== undefined) findings.push(error(problem, 'Stop the server, then: rookery doctor --repair'));
    }
    if (tables.has('pushers')) {
      const row = await db.get<{ total: number }>(
        'SELECT COUNT(*) AS total FROM pushers WHERE failing_since IS NOT NULL',
      );
      if (Number(row?.total ?? 0) > 0)
        findings.push(
          warning(
            `${row?.total} pushers fail`,
            'GET /_synapse/admin/v1/users/{userId}/pushers shows them; a gateway may be down, or a proxy in the way.',
          ),
        );
    }
    if (options.name !== 'sqlite3') {
      const row = await db.get<{ now: number }>('SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT AS now');
      const skewMs = Math.abs(Number(row?.now ?? 0) - new SystemClock().nowMs());
      if (skewMs > clockSkewMs)
        findings.push(
          warning(
            `the clocks of this machine and of the database differ by ${Math.round(skewMs / 1000)} seconds`,
            'Let both follow a time server.',
          ),
        );
    }
    return findings;
  });

/** Room where data grow. */
export const diskCheck: Check = {
  name: 'disk',
  run: (config) => {
    const sections = [
      { name: config.get('database.name') as string, args: config.get('database.args') },
      ...Object.values(config.get('databases') ?? {}),
    ];
    const databases = sections.map(({ name, args }) =>
      name.startsWith('sqlite') ? String(args['database'] ?? '') : '',
    );
    const folders = databases.map((database) => (database === '' ? '' : dirname(database)));
    const places = [...new Set([config.get('media_store_path'), ...folders])].filter((place) => place !== '');
    return Promise.resolve(places.map(roomAt));
  },
};

function roomAt(place: string): Finding {
  let existing = place;
  while (!existsSync(existing) && existing !== dirname(existing)) existing = dirname(existing);
  const { bavail, blocks, bsize } = statfsSync(existing);
  const free = bavail * bsize;
  const text = `${inBytes(free)} of ${inBytes(blocks * bsize)} are free at ${place}`;
  if (free < littleBytes) return error(text, 'Make room: without it the server refuses to store.');
  return bavail < blocks * littleShare ? warning(text, 'Make room soon.') : ok(text);
}

/** Certificates of our own listeners. */
export const certificateCheck: Check = {
  name: 'certificates',
  run: (config) => {
    const file = config.get('tls_certificate_path');
    if (file === undefined) return Promise.resolve([ok('a proxy speaks TLS: no certificate here')]);
    return Promise.resolve([certificateAt(file, config.serverName)]);
  },
};

function certificateAt(file: string, serverName: string): Finding {
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(readFileSync(file));
  } catch (reason) {
    return error(`${file}: ${(reason as Error).message}`, 'Put the certificate there, in PEM.');
  }
  const days = Math.floor((certificate.validToDate.getTime() - new SystemClock().nowMs()) / dayMs);
  if (days < 0) return error(`${file} has expired on ${certificate.validTo}`, 'Renew it, then: rookery reload');
  if (days < warnBeforeDays) return warning(`${file} expires in ${days} days`, 'Renew it, then: rookery reload');
  const host = serverName.replace(/:\d+$/, '');
  return certificate.checkHost(host) === undefined
    ? warning(
        `${file} is not for ${host}`,
        'Fine where another name is delegated to; otherwise other servers refuse it.',
      )
    : ok(`${file} is valid for ${days} more days`);
}

/** What a listener can serve that people and other servers reach by way of a proxy. */
const ofClients: ReadonlySet<string> = new Set([
  ...['client', 'federation', 'media', 'keys', 'openid', 'consent', 'static'],
]);
const isForClients = (names: readonly string[]): boolean => names.some((name) => ofClients.has(name));

/** What the settings say about addresses and proxies. */
export const proxyCheck: Check = {
  name: 'proxy',
  run: (config) => {
    const findings: Finding[] = [];
    const isHttps = config.get('public_baseurl')?.startsWith('https:') ?? false;
    const forClients = config
      .get('listeners')
      .filter(({ type, resources }) => type === 'http' && isForClients(resources.flatMap(({ names }) => names)));
    for (const listener of forClients) {
      const at = `the listener at ${listener.path ?? `port ${listener.port}`}`;
      // Where none is named, it is all of them. Nobody reaches a socket of this machine from elsewhere.
      const addresses = listener.path === undefined ? (listener.bind_addresses ?? ['::']) : [];
      if (isHttps && !listener.tls && !listener.x_forwarded)
        findings.push(
          error(
            `${at} does not believe what a proxy says of clients, though public_baseurl is https`,
            'Set x_forwarded: true there, and let the proxy send X-Forwarded-For and X-Forwarded-Proto.',
          ),
        );
      else if (listener.x_forwarded && addresses.some((address) => address === '0.0.0.0' || address === '::'))
        findings.push(
          warning(
            `${at} believes what anybody says of their address`,
            'Bind it to the address that only the proxy reaches.',
          ),
        );
    }
    return Promise.resolve(findings.length > 0 ? findings : [ok('listeners and public_baseurl fit each other')]);
  },
};

/** Whether modules load. */
export const moduleCheck: Check = {
  name: 'modules',
  async run(config, files) {
    if (config.get('modules').length === 0) return [ok('none')];
    const { modules, problems } = await checkModules(files);
    const findings = [
      ...problems.map((problem) => error(problem)),
      ...modules.flatMap(({ entry, problem, warnings }) => [
        ...(problem === undefined ? [] : [error(`${entry}: ${problem}`, 'rookery module check says more.')]),
        ...warnings.map((text) => warning(`${entry}: ${text}`)),
      ]),
    ];
    return findings.length > 0 ? findings : [ok(modules.map(({ entry }) => entry).join(', '))];
  },
};
