import { lookup } from 'node:dns/promises';
import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Config } from '@rookery/platform';
import { type Check, error, type Finding, ok, warning } from './finding.js';
import { probeServer, skew } from './server-probe.js';

const limitMs = 10_000;
const maxAnswer = 100_000;

interface Answer {
  readonly status: number;
  readonly json: unknown;
  readonly date: string | null;
}

/** Asks an address; what is not JSON is answered with `undefined` in its place. @throws Error when nobody answers */
async function ask(url: string): Promise<Answer> {
  const answer = await fetch(url, { signal: AbortSignal.timeout(limitMs), redirect: 'follow' });
  const text = (await answer.text()).slice(0, maxAnswer);
  let json: unknown;
  try {
    json = JSON.parse(text) as unknown;
  } catch {
    json = undefined;
  }
  return { status: answer.status, json, date: answer.headers.get('date') };
}

const reasonOf = (reason: unknown): string => {
  const { message, cause } = reason as Error;
  return cause instanceof Error ? ('code' in cause ? String(cause.code) : '') || cause.message : message;
};

const fieldOf = (json: unknown, name: string): unknown =>
  typeof json === 'object' && json !== null ? (json as Readonly<Record<string, unknown>>)[name] : undefined;

/** The server at the address that clients use. */
export const clientCheck: Check = {
  name: 'clients',
  isRemote: true,
  async run(config) {
    const base = config.isGiven('public_baseurl') ? config.get('public_baseurl')?.replace(/\/$/, '') : undefined;
    if (base === undefined) return [warning('public_baseurl is not set', 'Set it to the address that clients use.')];
    const findings: Finding[] = [];
    for (const [path, field, remedy] of [
      [
        `/${config.get('protocol_prefix')}/client/versions`,
        'versions',
        'Is the server running, and does the proxy forward this path?',
      ],
      [
        `/${config.get('service_prefix')}/client/`,
        undefined,
        'Let the proxy forward this path: links in mails and single sign-on need it.',
      ],
    ] as const) {
      try {
        const { status, json, date } = await ask(base + path);
        // This server answers in JSON where there is nothing, a proxy in its own words.
        const isOurs =
          field === undefined
            ? fieldOf(json, 'errcode') !== undefined || status === 200
            : fieldOf(json, field) !== undefined;
        findings.push(
          isOurs
            ? ok(`${base}${path} answers`)
            : error(`${base}${path} answers ${status}, and not as this server would`, remedy),
        );
        findings.push(...skew(date, base));
      } catch (reason) {
        findings.push(error(`${base}${path} cannot be reached: ${reasonOf(reason)}`, remedy));
      }
    }
    return findings;
  },
};

/** How other servers find this one, and whether it answers there. */
export const federationCheck: Check = {
  name: 'federation',
  isRemote: true,
  run: (config) => probeServer(config.serverName, { prefix: config.get('protocol_prefix') }),
};

/** Names that the server needs. */
export const dnsCheck: Check = {
  name: 'names',
  isRemote: true,
  async run(config) {
    const hosts = new Set([config.serverName.replace(/:\d+$/, ''), ...hostsOf(config)]);
    const findings: Finding[] = [];
    for (const host of hosts) {
      try {
        findings.push(ok(`${host} is ${(await lookup(host)).address}`));
      } catch (reason) {
        findings.push(
          error(
            `${host} is not known: ${(reason as NodeJS.ErrnoException).code ?? ''}`,
            'Make the record, or mend the name servers of this machine.',
          ),
        );
      }
    }
    return findings;
  },
};

const hostsOf = (config: Config): string[] =>
  [
    config.isGiven('public_baseurl') ? (config.get('public_baseurl') ?? '') : '',
    ...config.get('trusted_key_servers').map(({ server_name: name }) => `https://${name}`),
  ]
    .filter((url) => URL.canParse(url))
    .map((url) => new URL(url).hostname.replace(/^\[|\]$/g, ''));

/** The mail server's greeting. */
export const mailCheck: Check = {
  name: 'mail',
  isRemote: true,
  async run(config) {
    if (!config.isGiven('email.notif_from')) return [ok('no mails are sent: email.notif_from is not set')];
    const host = config.get('email.smtp_host');
    const isTls = config.get('email.force_tls');
    const port = config.get('email.smtp_port') ?? (isTls ? 465 : 25);
    const greeting = await greetingOf(host, port, isTls).catch((reason: unknown) => reason as Error);
    if (greeting instanceof Error)
      return [
        error(
          `the mail server ${host}:${port} cannot be reached: ${reasonOf(greeting)}`,
          'Check email.smtp_host, email.smtp_port and email.force_tls.',
        ),
      ];
    return greeting.startsWith('220')
      ? [ok(`the mail server ${host}:${port} answers`)]
      : [
          error(
            `${host}:${port} does not speak as a mail server: ${greeting.slice(0, 60)}`,
            'Check email.smtp_port and email.force_tls.',
          ),
        ];
  },
};

function greetingOf(host: string, port: number, isTls: boolean): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = isTls ? connectTls({ host, port, servername: host }) : connect({ host, port });
    socket.setTimeout(limitMs, () => socket.destroy(new Error('it does not answer')));
    socket.on('error', reject);
    socket.once('data', (data: Buffer) => {
      resolve(data.toString('latin1').split('\r\n')[0] ?? '');
      socket.end('QUIT\r\n');
      socket.destroySoon();
    });
    socket.on('close', () => reject(new Error('it hung up')));
  });
}
