import { canonicalJson } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { eventually, FakeClock, type TestHomeserver } from '@rookery/testing';
import { connect } from 'node:net';
import { databases } from '../rooms/rooms-client.js';
import { FederationWorld, type PlayedServer, send } from './federation-world.js';

const mebibyte = 1_048_576;
const text = (bytes: number): string => 'x'.repeat(Math.min(bytes, mebibyte));

describe.each(databases)('requests of which nobody knows yet whether they are signed (%s)', (database) => {
  let world: FederationWorld;
  let here: TestHomeserver;
  let there: PlayedServer;
  beforeAll(async () => {
    world = await FederationWorld.create();
    here = await world.homeserver('here.test', { database });
    there = await world.played('there.test');
  });
  afterAll(() => world.stop());

  let count = 0;
  const transaction = (): string => `/_matrix/federation/v1/send/t${count++}`;
  const content = (bytes: number, origin = 'there.test'): JsonObject => ({
    origin,
    origin_server_ts: 1,
    pdus: [],
    edus: [
      {
        edu_type: 'org.example',
        content: { text: Array.from({ length: Math.ceil(bytes / mebibyte) }, (_, i) => text(bytes - i * mebibyte)) },
      },
    ],
  });
  const put = async (uri: string, body: string, authorization: string): Promise<unknown[]> => {
    const answer = await send(here, 'PUT', uri, authorization, body);
    return [answer.status, answer.body['errcode'] ?? 'answered'];
  };

  it('are not read while their key is looked for', async () => {
    const silent = await world.played('silent.test');
    const held: (() => void)[] = [];
    let asked = 0;
    silent.keys = () => {
      asked++;
      return new Promise((resolve) => held.push(() => resolve({})));
    };
    const { hostname, port } = new URL(here.baseUrl);
    const uri = transaction();
    const socket = connect(Number(port), hostname);
    socket.on('error', () => undefined);
    socket.write(
      `PUT ${uri} HTTP/1.1\r\nHost: x\r\nAuthorization: ${silent.authorization('PUT', uri, 'here.test', {})}\r\n` +
        'Transfer-Encoding: chunked\r\n\r\n',
    );
    // Far more than the system buffers on the way.
    const chunk = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(65_536, '['), Buffer.from('\r\n')]);
    for (let i = 0; i < 1_000; i++) socket.write(chunk);
    await eventually(() => asked > 0);
    // Whoever else asks meanwhile is answered.
    const other = transaction();
    expect(await put(other, '{}', there.authorization('PUT', other, 'here.test', {}))).toEqual([200, 'answered']);
    const sent = (): number => socket.bytesWritten - socket.writableLength;
    let before = -1;
    await eventually(async () => {
      const same = sent() === before;
      before = sent();
      await new Promise((resolve) => setTimeout(resolve, 200));
      return same;
    });
    expect(sent()).toBeLessThan(32 * mebibyte);
    socket.destroy();
    for (const answer of held) answer();
  });

  it('may be as large as a transaction gets when the server is known, and no larger', async () => {
    const uri = transaction();
    const large = content(12 * mebibyte);
    const authorization = there.authorization('PUT', uri, 'here.test', large);
    expect(await put(uri, canonicalJson(large), authorization)).toEqual([200, 'answered']);
    expect(await put(transaction(), canonicalJson(large), authorization)).toEqual([401, 'M_UNAUTHORIZED']);
    expect(await put(transaction(), 'x'.repeat(13_107_201), authorization)).toEqual([413, 'M_TOO_LARGE']);
  });

  it('are smaller from a server that was never heard of', async () => {
    const fresh = await world.played('fresh.test');
    const large = content(5 * mebibyte, 'fresh.test');
    const uri = transaction();
    const authorization = fresh.authorization('PUT', uri, 'here.test', large);
    expect(await put(uri, canonicalJson(large), authorization)).toEqual([413, 'M_TOO_LARGE']);
    // Its key is known from now on.
    expect(await put(uri, canonicalJson(large), authorization)).toEqual([200, 'answered']);
  });

  it('may be written in another way than they were signed, within reason', async () => {
    const ways = (value: JsonObject): string[] => [
      JSON.stringify(value, undefined, 2),
      JSON.stringify(Object.fromEntries(Object.entries(value).toReversed())),
      JSON.stringify(value).replaceAll('x', '\\u0078'),
    ];
    for (const written of ways(content(100_000))) {
      const uri = transaction();
      expect(await put(uri, written, there.authorization('PUT', uri, 'here.test', content(100_000)))).toEqual([
        200,
        'answered',
      ]);
      expect(await put(uri, written, there.authorization('PUT', uri, 'here.test', content(99_999)))).toEqual([
        401,
        'M_UNAUTHORIZED',
      ]);
    }
    const uri = transaction();
    const many = { ...content(1), more: Array.from({ length: 60_000 }, () => []) };
    const authorization = there.authorization('PUT', uri, 'here.test', many);
    expect(await put(uri, ` ${canonicalJson(many)}`, authorization)).toEqual([413, 'M_TOO_LARGE']);
    const large = content(5 * mebibyte);
    expect(await put(uri, ` ${canonicalJson(large)}`, there.authorization('PUT', uri, 'here.test', large))).toEqual([
      401,
      'M_UNAUTHORIZED',
    ]);
  });

  it('are not taken for signed because what they say looks like the rest of what is signed', async () => {
    const uri = transaction();
    const authorization = there.authorization('PUT', uri, 'here.test', {});
    const rest = `,"destination":"here.test","method":"PUT","origin":"there.test","uri":"${uri}"}`;
    expect(await put(uri, `{}${rest.slice(0, -1)}`, authorization)).toEqual([400, 'M_NOT_JSON']);
    expect(await put(uri, '', authorization)).toEqual([401, 'M_UNAUTHORIZED']);
    expect(await put(uri, '[]', authorization)).toEqual([400, 'M_BAD_JSON']);
    expect(await put(uri, '{}', authorization)).toEqual([200, 'answered']);
  });

  it('may not hold a string that no event has room for', async () => {
    const uri = transaction();
    const long = { ...content(1), more: 'é'.repeat(mebibyte) };
    expect(await put(uri, canonicalJson(long), there.authorization('PUT', uri, 'here.test', long))).toEqual([
      413,
      'M_TOO_LARGE',
    ]);
  });

  /** What a server answers to a transaction of nothing. */
  const empty = async (to: TestHomeserver, from: PlayedServer): Promise<number> =>
    (await from.request(to, 'PUT', transaction(), { ...content(0, from.name), edus: [] })).status;

  it('are refused once many with made-up names have come from an address, but for servers that are known there', async () => {
    // What it allows again with time is not to come back while a slow machine asks.
    const asked = await world.homeserver('asked.test', { database, clock: new FakeClock(Date.now()) });
    expect(await empty(asked, there)).toBe(200);
    const ask = async (origin: string): Promise<number> => {
      const authorization = `X-Matrix origin="${origin}",destination="asked.test",key="ed25519:a",sig="${'a'.repeat(86)}"`;
      return (await send(asked, 'GET', '/_matrix/federation/v1/publicRooms', authorization)).status;
    };
    const answers = new Set<number>();
    for (let i = 0; i < 1_000 && !answers.has(429); i++) answers.add(await ask(`made-up-${i}.invalid`));
    expect([...answers].toSorted()).toEqual([401, 429]);
    expect(await empty(asked, there)).toBe(200);
  });

  it('are refused once much with wrong signatures has come from an address, but for servers that are known there', async () => {
    const other = await world.homeserver('other.test', { database });
    const known = await world.played('known.test');
    expect(await empty(other, there)).toBe(200);
    const junk = canonicalJson(content(3 * mebibyte));
    const forge = async (): Promise<number> =>
      (await send(other, 'PUT', transaction(), known.authorization('PUT', '/x', 'other.test', {}), junk)).status;
    const answers = new Set<number>();
    for (let i = 0; i < 50 && !answers.has(429); i++) answers.add(await forge());
    expect([...answers].toSorted()).toEqual([401, 429]);
    expect(await empty(other, there)).toBe(200);
  });
});
