import { FakeNames, openTestDatabase, type TestDatabase } from '@rookery/testing';
import { randomInt } from 'node:crypto';
import { networkInterfaces } from 'node:os';
import { json, makeClient, PlayedServer, type TestClient } from '../federation-client.fixture.js';
import { federationClientMigrations } from '../migrations/federation-client-01.migration.js';
import type { FederationRequestError } from '../requests/federation-request-error.js';
import { parseAuthorization } from '../signing/authorization.js';

const path = '/_matrix/federation/v1/version';

/** A way to a server, as the specification lists them. `PORT` stands for the one at which the server listens. */
interface Way {
  readonly name: string;
  /** What the name's document points to; default: there is none. */
  readonly delegate?: string;
  /** SRV records: which name has one, of which machine. */
  readonly services?: Readonly<Record<string, string>>;
  /** `host:port` that leads to the server; an address leads there by itself. */
  readonly reached?: string;
  readonly listens?: { readonly address: string; readonly port?: number };
  /** Value of `Host`. */
  readonly host: string;
  /** Whom the certificate must be for, and whose name is said in TLS. */
  readonly certificate: string;
  /** Whose certificates are none of this server. */
  readonly foreign: readonly string[];
  /** What is looked up before the address of {@link reached}, in order. */
  readonly asked: readonly string[];
}

const fed = '_matrix-fed._tcp.';
const old = '_matrix._tcp.';
/** Addresses of their own: another test may use the default port too. */
const [b, c, d] = [randomInt(1, 255), randomInt(256), randomInt(1, 255)];
const own = `127.${b}.${c}.${d}`;
const other = `127.${b}.${c}.${d === 1 ? 2 : d - 1}`;
const hex = (high: number, low: number): string => (high * 256 + low).toString(16);
const ownMapped = `::ffff:${hex(127, b)}:${hex(c, d)}`;

const addresses: Record<string, Way> = {
  '1: an address with a port': {
    ...{ name: '127.0.0.1:PORT', host: '127.0.0.1:PORT', certificate: '127.0.0.1' },
    ...{ foreign: ['127.0.0.2', 'a.test'], asked: [] },
  },
  '1: an address without a port': {
    ...{ name: own, host: own, certificate: own, listens: { address: own, port: 8448 } },
    ...{ foreign: ['127.0.0.1', 'a.test'], asked: [] },
  },
  '3.1: a document that points to an address': {
    ...{ name: 'a.test', delegate: other, host: other, certificate: other, listens: { address: other, port: 8448 } },
    ...{ foreign: ['a.test'], asked: ['a.test:443'] },
  },
  '3.1: a document that points to an address with a port': {
    ...{ name: 'a.test', delegate: '127.0.0.1:PORT', host: '127.0.0.1:PORT', certificate: '127.0.0.1' },
    ...{ foreign: ['a.test'], asked: ['a.test:443'] },
  },
};
const addresses6: Record<string, Way> = {
  '1: an address of version 6 with a port': {
    ...{ name: '[::1]:PORT', host: '[::1]:PORT', certificate: '::1', listens: { address: '::1' } },
    ...{ foreign: ['::2', 'a.test'], asked: [] },
  },
  '1: an address of version 6 without a port': {
    ...{ name: `[${ownMapped}]`, host: `[${ownMapped}]`, certificate: ownMapped },
    ...{ listens: { address: own, port: 8448 }, foreign: ['::1', 'a.test'], asked: [] },
  },
  '3.1: a document that points to an address of version 6': {
    ...{ name: 'a.test', delegate: '[::1]:PORT', host: '[::1]:PORT', certificate: '::1', listens: { address: '::1' } },
    ...{ foreign: ['a.test'], asked: ['a.test:443'] },
  },
};
const names: Record<string, Way> = {
  '2: a name with a port': {
    ...{ name: 'a.test:1234', reached: 'a.test:1234', host: 'a.test:1234', certificate: 'a.test' },
    // Neither a document nor a record counts.
    ...{ delegate: 'b.test', services: { [`${fed}a.test`]: 'm.test' }, foreign: ['b.test', 'm.test'], asked: [] },
  },
  '3.2: a document that points to a name with a port': {
    ...{ name: 'a.test', delegate: 'b.test:1234', reached: 'b.test:1234', host: 'b.test:1234', certificate: 'b.test' },
    ...{ services: { [`${fed}b.test`]: 'm.test', [`${fed}a.test`]: 'm.test' } },
    ...{ foreign: ['a.test', 'm.test'], asked: ['a.test:443'] },
  },
  '3.3: a document that points to a name with a record': {
    ...{ name: 'a.test', delegate: 'b.test', reached: 'm.test:4444', host: 'b.test', certificate: 'b.test' },
    ...{ services: { [`${fed}b.test`]: 'm.test', [`${old}b.test`]: 'x.test', [`${fed}a.test`]: 'x.test' } },
    ...{ foreign: ['a.test', 'm.test'], asked: ['a.test:443', `${fed}b.test`] },
  },
  '3.4: a document that points to a name with an old record': {
    ...{ name: 'a.test', delegate: 'b.test', reached: 'm.test:4444', host: 'b.test', certificate: 'b.test' },
    ...{ services: { [`${old}b.test`]: 'm.test', [`${fed}a.test`]: 'x.test' } },
    ...{ foreign: ['a.test', 'm.test'], asked: ['a.test:443', `${fed}b.test`, `${old}b.test`] },
  },
  '3.5: a document that points to a name': {
    ...{ name: 'a.test', delegate: 'b.test', reached: 'b.test:8448', host: 'b.test', certificate: 'b.test' },
    ...{ foreign: ['a.test'], asked: ['a.test:443', `${fed}b.test`, `${old}b.test`] },
  },
  '4: a name with a record': {
    ...{ name: 'a.test', reached: 'm.test:4444', host: 'a.test', certificate: 'a.test' },
    ...{ services: { [`${fed}a.test`]: 'm.test', [`${old}a.test`]: 'x.test' } },
    ...{ foreign: ['m.test'], asked: ['a.test:443', `${fed}a.test`] },
  },
  '5: a name with an old record': {
    ...{ name: 'a.test', reached: 'm.test:4444', host: 'a.test', certificate: 'a.test' },
    ...{ services: { [`${old}a.test`]: 'm.test' } },
    ...{ foreign: ['m.test'], asked: ['a.test:443', `${fed}a.test`, `${old}a.test`] },
  },
  '6: a name': {
    ...{ name: 'a.test', reached: 'a.test:8448', host: 'a.test', certificate: 'a.test' },
    ...{ foreign: ['b.test'], asked: ['a.test:443', `${fed}a.test`, `${old}a.test`] },
  },
};
const hasVersion6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));

// @spec server-server-api#resolving-server-names, step by step
describe('a server is reached by its name', () => {
  let test: TestDatabase;
  const stops: (() => Promise<unknown>)[] = [];
  beforeAll(async () => {
    test = await openTestDatabase('sqlite');
    await test.migrate(federationClientMigrations);
  });
  afterAll(() => test.close());
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
  });

  const play = async (...args: Parameters<typeof PlayedServer.start>): Promise<PlayedServer> => {
    const server = await PlayedServer.start(...args);
    stops.push(() => server.stop());
    return server;
  };
  /** The world in which that is the way to a server with a certificate for somebody. */
  const world = async (
    way: Way,
    certified: string,
  ): Promise<TestClient & { server: PlayedServer; name: string; withPort: (text: string) => string }> => {
    const server = await play([certified], (_, response) => json(response, {}), way.listens);
    const withPort = (text: string): string => text.replace('PORT', String(server.port));
    const resolver = new FakeNames();
    if (way.reached !== undefined) resolver.host(way.reached, server.endpoint);
    for (const [service, name] of Object.entries(way.services ?? {}))
      resolver.service(service, { name, port: 4444, priority: 1, weight: 1 });
    if (way.delegate !== undefined) {
      const content = { 'm.server': withPort(way.delegate) };
      const host = await play(['a.test'], (_, response) => json(response, content));
      resolver.host('a.test:443', host.endpoint);
    }
    const client = makeClient({ database: test.database, names: resolver });
    stops.push(() => client.close());
    return { ...client, server, name: withPort(way.name), withPort };
  };
  const ways = Object.entries({ ...addresses, ...(hasVersion6 ? addresses6 : {}), ...names });

  it.each(ways)('%s', async (_, way) => {
    const { client, names: resolver, server, name, withPort } = await world(way, way.certificate);
    await client.getJson(name, path, {}, { retries: 'none' });
    const isName = way.reached !== undefined;
    expect(server.seen).toMatchObject([
      { url: path, sni: isName ? way.certificate : false, headers: { host: withPort(way.host) } },
    ]);
    expect(parseAuthorization(server.seen[0]!.headers.authorization!)!.destination).toBe(name);
    expect(resolver.asked).toEqual([...way.asked, ...(isName ? [way.reached] : [])]);
  });

  it.each(ways)('%s, and nobody is believed who has the certificate of another', async (_, way) => {
    for (const certified of way.foreign) {
      const { client, server, name } = await world(way, certified);
      const failure = await client.getJson(name, path, {}, { retries: 'none', ignoreBackoff: true }).then(
        () => undefined,
        (error: FederationRequestError) => error.reason,
      );
      expect([certified, failure, server.seen.length]).toEqual([certified, 'certificate', 0]);
      for (const stop of stops.splice(0).reverse()) await stop();
    }
  });

  it('is believed with a certificate for all names of a domain, one level deep', async () => {
    const deep: Way = { ...names['6: a name']!, name: 'a.b.test', reached: 'a.b.test:8448' };
    const wild = await world(deep, '*.b.test');
    expect(await wild.client.getJson('a.b.test', path, {}, { retries: 'none' })).toEqual({});
    const wrong = await world(deep, '*.test');
    await expect(
      wrong.client.getJson('a.b.test', path, {}, { retries: 'none', ignoreBackoff: true }),
    ).rejects.toMatchObject({ reason: 'certificate' });
  });
});
