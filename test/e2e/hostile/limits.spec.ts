import { Config } from '@rookery/platform';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { format, resolveConfig } from 'prettier';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, outcome } from '../rooms/rooms-client.js';
import { type Limit, limiters, limits } from './limits-table.js';

const root = process.cwd();
const page = join(root, 'docs', 'operators', 'limits.md');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');

/** The number that a file gives to a name; `undefined` when there is none. */
function numberIn({ source, name }: Limit): number | undefined {
  const text = read(source);
  const at = new RegExp(
    `${/^\w/.test(name) ? '\\b' : ''}${name.replace(/[^\w ]/g, '\\$&')}\\s*[=:]\\s*([\\d_]+(?:\\s*\\*\\s*[\\d_]+)*)`,
  );
  return at
    .exec(text)?.[1]
    ?.split('*')
    .reduce((product, factor) => product * Number(factor.replaceAll('_', '').trim()), 1);
}

const config = Config.fromObject({ server_name: 'rookery.test', report_stats: false });

interface Numbers {
  readonly per_second: number;
  readonly burst_count: number;
}
const numbersOf = (setting: string): Numbers | undefined => config.get(setting as 'rc_admin_redaction');

const inWords = ({ most, unit }: Limit): string =>
  unit === 'ms' ? `${most / 1000} s` : `${most.toLocaleString('en-US')}${unit === '' ? '' : ` ${unit}`}`;

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');

function render(): string {
  return [
    '# Limits',
    '<!-- Written from test/e2e/hostile/limits-table.ts; a test holds it against the sources. -->',
    'What a client can ask for at most, and what becomes of more. Sizes of media, how many files of one server are fetched at once, how much account data a user has, the length of timelines in a sync, how far events may be delayed and how large rooms elsewhere may be are [settings](configuration.md): `max_upload_size`, `max_image_pixels`, `remote_media_downloads_per_server`, `remote_media_downloads_per_user`, `max_account_data_size`, `filter_timeline_limit`, `max_event_delay_duration`, `federation.max_state_events`.',
    ...limits.flatMap(([chapter, list]) => [
      `## ${chapter}`,
      table(
        ['what', 'at most', 'more'],
        list.map((limit) => [limit.what, inWords(limit), limit.beyond]),
      ),
    ]),
    '## Rate limits',
    'Each limiter is a leaky bucket per key: it holds `burst_count` and loses `per_second`. What does not fit is answered with 429 `M_LIMIT_EXCEEDED`, `retry_after_ms` in the body and a `Retry-After` header, and takes nothing from the bucket. An IPv6 address counts with its whole network (/64).',
    table(
      ['setting', 'per second', 'burst', 'key', 'guards'],
      limiters.map(({ setting, key, guards }) => {
        const numbers = numbersOf(setting) ?? numbersOf('rc_message');
        return [`\`${setting}\``, String(numbers?.per_second), String(numbers?.burst_count), key, guards];
      }),
    ),
    'A login token from an existing session may be had once in a minute by each user; that is no setting.',
    'Exempt are application services whose registration says `rate_limited: false`, with all their users, the own user of every application service, and what modules send. Numbers that an administrator sets for a user replace those of `rc_message` and `rc_admin_redaction` (`0` per second: no limit at all, but for those of logins). A module may answer for the three limiters of invites.',
    '',
  ].join('\n\n');
}

/** Every source of the libs. */
function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'dist' || entry.name === 'node_modules' ? [] : sources(path);
    return /(?<!\.spec|\.d)\.ts$/.test(entry.name) ? [path] : [];
  });
}

describe('the page of limits', () => {
  it.each(limits.flatMap(([, list]) => list))('tells of the limit in the sources: $what', (limit) => {
    expect(numberIn(limit)).toBe(limit.most);
  });

  it('knows every limiter that the sources ask', () => {
    const asked = new Set(
      sources(join(root, 'libs')).flatMap((file) =>
        [...readFileSync(file, 'utf8').matchAll(/\b(?:take|mayTake)\(\s*'(rc_[\w.]+)'/g)].map(([, name]) => name),
      ),
    );
    expect(asked.size).toBeGreaterThan(15);
    const known = limiters.map(({ setting }) => setting);
    expect([...asked].filter((name) => !known.includes(name!))).toEqual([]);
  });

  // `ROOKERY_WRITE_LIMITS=1` writes it.
  it('says what the table says', async () => {
    const wanted = await format(render(), { ...(await resolveConfig(page)), filepath: page });
    if (process.env['ROOKERY_WRITE_LIMITS'] === '1') writeFileSync(page, wanted);
    expect(readFileSync(page, 'utf8')).toBe(wanted);
  });
});

describe('limits that clients run into', () => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let roomId: string;
  beforeAll(async () => {
    homeserver = await createTestHomeserver();
    alice = await homeserver.registerUser('alice');
    roomId = await createRoom(alice);
  });
  afterAll(() => homeserver.stop());

  const deep = (depth: number): unknown => JSON.parse(`${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`);
  const text = (length: number): string => 'x'.repeat(length);
  const many = (count: number, value: unknown = 'x'): unknown[] => new Array<unknown>(count).fill(value);
  const named = (count: number, value: unknown): object =>
    Object.fromEntries(many(count).map((_, i) => [`@n${i}:rookery.test`, value]));

  const cases: [method: string, path: string, body: unknown, expected: string][] = [
    ['GET', `/publicRooms?since=${text(17_000)}`, undefined, '414 M_TOO_LARGE'],
    ['GET', `/publicRooms?${'a=b&'.repeat(101)}`, undefined, '400 M_INVALID_PARAM'],
    ['GET', `/profile/${text(3_000)}`, undefined, '400 M_INVALID_PARAM'],
    ['PUT', '/user/:me/account_data/x', deep(129), '400 M_BAD_JSON'],
    ['PUT', '/user/:me/account_data/x', { a: text(1_048_577) }, '413 M_TOO_LARGE'],
    ['PUT', '/user/:me/account_data/m.ignored_user_list', { ignored_users: named(10_001, {}) }, '413 M_TOO_LARGE'],
    ['PUT', '/user/:me/rooms/:room/tags/u.x', { a: text(5_000) }, '413 M_TOO_LARGE'],
    ['POST', '/user/:me/filter', { a: text(65_536) }, '413 M_TOO_LARGE'],
    ['POST', '/user/:me/filter', { presence: { types: many(1_001) } }, '400 M_BAD_JSON'],
    ['PUT', '/profile/:me/displayname', { displayname: text(257) }, '400 M_INVALID_PARAM'],
    ['PUT', '/profile/:me/avatar_url', { avatar_url: text(1_001) }, '400 M_INVALID_PARAM'],
    ['PUT', `/profile/:me/${text(256)}`, { [text(256)]: 1 }, '400 M_KEY_TOO_LARGE'],
    ['PUT', '/profile/:me/m.x', { 'm.x': text(65_536) }, '400 M_PROFILE_TOO_LARGE'],
    ['PUT', '/devices/:device', { display_name: text(101) }, '400 M_TOO_LARGE'],
    ['POST', '/delete_devices', { devices: many(1_001) }, '400 M_INVALID_PARAM'],
    ['PUT', '/rooms/:room/send/m.x/t', { body: text(65_536) }, '413 M_TOO_LARGE'],
    ['PUT', `/rooms/:room/send/m.x/${text(256)}`, {}, '400 M_INVALID_PARAM'],
    [
      'PUT',
      '/rooms/:room/state/m.room.canonical_alias',
      { alt_aliases: many(101).map((_, i) => `#a${i}:b.invalid`) },
      '400 M_BAD_JSON',
    ],
    ['POST', '/createRoom', { invite: many(501).map((_, i) => `@u${i}:rookery.test`) }, '400 M_INVALID_PARAM'],
    ['POST', '/createRoom', { initial_state: many(1_001, { type: 'm.x', content: {} }) }, '400 M_INVALID_PARAM'],
    ['POST', '/rooms/:room/leave', { reason: text(4_097) }, '400 M_INVALID_PARAM'],
    ['GET', '/rooms/:room/messages?dir=b&limit=99999999', undefined, '200'],
    [
      'POST',
      '/register/email/requestToken',
      { client_secret: 's', email: 'a@b.c', send_attempt: 1e21 },
      '400 M_INVALID_PARAM',
    ],
    ['PUT', '/presence/:me/status', { presence: 'online', status_msg: text(1_025) }, '400 M_INVALID_PARAM'],
    ['POST', '/keys/query', { device_keys: named(5_001, []) }, '400 M_INVALID_PARAM'],
    ['POST', '/keys/query?', { device_keys: { ':me': many(5_001, 'D') } }, '400 M_INVALID_PARAM'],
    ['POST', '/keys/signatures/upload', { ':me': named(1_001, {}) }, '413 M_TOO_LARGE'],
    ['PUT', '/sendToDevice/m.x/t', { messages: { ':me': named(10_001, {}) } }, '413 M_TOO_LARGE'],
    ['PUT', '/sendToDevice/m.x/u', { messages: { ':me': { '*': { a: text(65_536) } } } }, '413 M_TOO_LARGE'],
    ['PUT', '/pushrules/global/override/x', { actions: many(21, 'notify'), conditions: [] }, '400 M_INVALID_PARAM'],
    ['PUT', `/pushrules/global/content/x`, { actions: [], pattern: text(1_001) }, '400 M_INVALID_PARAM'],
    ['POST', '/search', { search_categories: { room_events: { search_term: text(1_001) } } }, '400 M_INVALID_PARAM'],
  ];
  it.each(cases.map((row) => [row[1].slice(0, 50), ...row] as const))('%s', async (_, method, path, body, expected) => {
    const fill = (template: string): string =>
      template.replace(':me', alice.userId).replace(':room', roomId).replace(':device', alice.deviceId);
    const sent = body === undefined ? undefined : (JSON.parse(fill(JSON.stringify(body))) as unknown);
    expect(outcome(await alice.request(method, fill(path), sent))).toBe(expected);
  });
});
