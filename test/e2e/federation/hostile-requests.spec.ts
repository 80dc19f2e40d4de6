import { databases } from '../rooms/rooms-client.js';
import { Dice } from '../hostile/dice.js';
import { FederationWorld } from './federation-world.js';

const routes = [
  'GET /_matrix/key/v2/server',
  'GET /_matrix/key/v2/query/there.test',
  'POST /_matrix/key/v2/query',
  'GET /_matrix/federation/v1/version',
  'GET /_matrix/federation/v1/query/profile?user_id=%40alice%3Ahere.test',
  'GET /_matrix/federation/v1/query/directory?room_alias=%23a%3Ahere.test',
  'GET /_matrix/federation/v1/publicRooms?limit=1',
  'POST /_matrix/federation/v1/publicRooms',
  'GET /_matrix/federation/v1/media/download/abc?timeout_ms=0',
  'GET /_matrix/federation/v1/media/thumbnail/abc?timeout_ms=0&width=1&height=1',
  'GET /_matrix/federation/v1/openid/userinfo?access_token=abc',
];
const pieces = [
  ...[
    '',
    'x',
    '0',
    '-1',
    '1e400',
    'null',
    '%00',
    '%ff',
    '%2f..%2f',
    '..',
    'a'.repeat(3_000),
    '☃',
    "'",
    '"',
    '\\',
    '{}',
    '[]',
  ],
  ...[
    'here.test',
    'there.test',
    '@alice:here.test',
    '[::1]:1',
    '127.0.0.1',
    'nowhere.test',
    '__proto__',
    'constructor',
  ],
];

describe.each(databases)('hostile requests of other servers (%s)', (database) => {
  let world: FederationWorld;
  beforeAll(async () => {
    world = await FederationWorld.create();
  });
  afterAll(() => world.stop());

  it('are refused with a reason, and hurt nobody', async () => {
    const here = await world.homeserver('here.test', {
      database,
      settings: {
        allow_public_rooms_over_federation: true,
        // What is slowed down is not tested here.
        rc_federation: { sleep_limit: 100_000, reject_limit: 100_000, concurrent: 100 },
      },
    });
    const alice = await here.registerUser('alice');
    const other = await world.played('there.test');
    const dice = new Dice('federation');
    const statuses = new Map<number, number>();
    const offenses: string[] = [];
    for (let i = 0; i < 600; i++) {
      const [method = '', target = ''] = dice.pick(routes).split(' ');
      let uri = target;
      if (dice.chance(0.5)) {
        const at = uri.search(dice.pick([/=/, /\/[^/]*$/, /\?/, /$/]));
        uri = `${uri.slice(0, Math.max(at, 10) + 1)}${encodeURI(dice.pick(pieces)).replaceAll('%25', '%')}`;
      }
      const sent =
        method === 'GET'
          ? undefined
          : dice.pick([
              ...['', '{}', 'x', '[1]', '{"server_keys":{}}', '{"limit":1}', '{"limit":-1}', '{"limit":1e400}'],
              `{"server_keys":{${JSON.stringify(dice.pick(pieces))}:{${JSON.stringify(dice.pick(pieces))}:{}}}}`,
              `{"filter":${'{"filter":'.repeat(600)}1${'}'.repeat(601)}`,
              `{"since":${JSON.stringify(dice.pick(pieces))},"filter":{"generic_search_term":"\\u0000"}}`,
            ]);
      let content: Record<string, unknown> | undefined;
      try {
        if (sent !== undefined && sent !== '') content = JSON.parse(sent) as Record<string, unknown>;
      } catch {
        // signed without a body
      }
      let authorization: string | undefined;
      try {
        authorization = other.authorization(method, uri, 'here.test', content);
      } catch {
        // no canonical form
      }
      if (authorization !== undefined && dice.chance(0.3)) {
        const cut = Math.floor(authorization.length * (dice.chance(0.5) ? 0.3 : 0.8));
        authorization = `${authorization.slice(0, cut)}${dice.pick(pieces).replace(/[^\x20-\x7e]/g, '')}${authorization.slice(cut + 1)}`;
      }
      const response = await fetch(`${here.baseUrl}${uri}`, {
        method,
        headers: authorization === undefined ? {} : { authorization },
        ...(sent === undefined ? {} : { body: sent }),
      });
      statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
      const text = await response.text();
      const errcode = response.status < 400 ? 'none' : /"errcode":"M_[A-Z_]+"/.exec(text)?.[0];
      if (response.status >= 500 || errcode === undefined)
        offenses.push(`${i}: ${method} ${uri} ${response.status} ${text}`);
    }
    expect(offenses).toEqual([]);
    expect([...statuses.keys()].toSorted()).toEqual(expect.arrayContaining([200, 400, 401, 404]));
    expect((await alice.request('GET', '/account/whoami')).status).toBe(200);
    // Names that strangers made up leave nothing behind.
    const { Database } = await import('@rookery/database');
    const rows = await here.server
      .service(Database)
      .query<{ destination: string }>('SELECT destination FROM destinations');
    expect(rows).toEqual([]);
  });
});
