import { Database } from '@rookery/database';
import { Destinations } from '@rookery/federation-client';
import type { TestHomeserver, TestUser } from '@rookery/testing';
import { databases, outcome, startHomeserver } from '../rooms/rooms-client.js';
import { type EndpointRow, notRefused, type Operator, operatorOf } from './operator-world.js';

interface DestinationPage {
  readonly destinations: readonly { readonly destination: string }[];
  readonly total: number;
  readonly next_token?: string;
}

describe.each(databases)('other servers in the admin API (%s)', (database) => {
  let homeserver: TestHomeserver;
  let root: Operator;
  let alice: TestUser;
  const base = '/v1/federation/destinations';
  const list = (query = ''): Promise<DestinationPage> => root.ok<DestinationPage>('GET', `${base}${query}`);
  const names = (page: DestinationPage): string[] => page.destinations.map(({ destination }) => destination);

  beforeAll(async () => {
    homeserver = await startHomeserver(database);
    root = await operatorOf(homeserver);
    alice = await homeserver.registerUser('alice');
    await homeserver.server.service(Destinations).failed('down.test');
    await homeserver.server.service(Database).write(async (tx) => {
      const columns = ['destination', 'last_successful_stream_ordering'];
      await tx.insertMany('destinations', columns, [
        ['up.test', 7],
        ['xn--caf-dma.test:8448', null],
      ]);
      await tx.insertMany(
        'destination_rooms',
        ['destination', 'room_id', 'stream_ordering'],
        ['!a:up.test', '!b:up.test', '!c:up.test'].map((roomId, index) => ['up.test', roomId, index + 1]),
      );
    });
  });
  afterAll(() => homeserver?.stop());

  it('destinations are listed with their state', async () => {
    const page = await list();
    expect(names(page)).toEqual(['down.test', 'up.test', 'xn--caf-dma.test:8448']);
    expect(page.total).toBe(3);
    expect(page.destinations[0]).toEqual({
      destination: 'down.test',
      retry_last_ts: expect.any(Number) as number,
      retry_interval: 600_000,
      failure_ts: expect.any(Number) as number,
      last_successful_stream_ordering: null,
    });
    expect(page.destinations[1]).toEqual({
      destination: 'up.test',
      retry_last_ts: 0,
      retry_interval: 0,
      failure_ts: null,
      last_successful_stream_ordering: 7,
    });
  });

  it('come in pages, ordered and searched', async () => {
    expect(await list('?limit=2')).toMatchObject({ total: 3, next_token: '2' });
    expect(await list('?from=2')).not.toHaveProperty('next_token');
    expect(names(await list('?destination=UP'))).toEqual(['up.test']);
    expect(names(await list('?destination=_'))).toEqual([]);
    expect(names(await list('?destination='))).toEqual(names(await list()));
    expect(names(await list('?dir=b'))).toEqual(['xn--caf-dma.test:8448', 'up.test', 'down.test']);
    for (const order of ['retry_last_ts', 'retry_interval'])
      expect(names(await list(`?order_by=${order}&dir=b`))[0]).toBe('down.test');
    // What has no value goes last, and first where the order is turned around.
    for (const [order, only] of [
      ['failure_ts', 'down.test'],
      ['last_successful_stream_ordering', 'up.test'],
    ]) {
      expect(names(await list(`?order_by=${order}`))[0]).toBe(only);
      expect(names(await list(`?order_by=${order}&dir=b`)).at(-1)).toBe(only);
    }
    for (const query of ['?order_by=x', '?limit=-1', '?dir=x'])
      expect(outcome(await root.call('GET', `${base}${query}`))).toBe('400 M_INVALID_PARAM');
  });

  it('are shown one by one, with the rooms that they are told of', async () => {
    expect(await root.ok('GET', `${base}/up.test`)).toMatchObject({ last_successful_stream_ordering: 7 });
    expect(await root.ok('GET', `${base}/up.test/rooms?limit=2`)).toEqual({
      rooms: [
        { room_id: '!a:up.test', stream_ordering: 1 },
        { room_id: '!b:up.test', stream_ordering: 2 },
      ],
      total: 3,
      next_token: '2',
    });
    const back = await root.ok<{ rooms: { room_id: string }[] }>('GET', `${base}/up.test/rooms?dir=b`);
    expect(back.rooms.map((room) => room.room_id)).toEqual(['!c:up.test', '!b:up.test', '!a:up.test']);
    for (const what of ['', '/rooms'])
      expect(outcome(await root.call('GET', `${base}/unknown.test${what}`))).toBe('404 M_NOT_FOUND');
  });

  it('are tried again at once when an administrator says so', async () => {
    expect(await root.ok('POST', `${base}/down.test/reset_connection`)).toEqual({});
    expect(await root.ok('GET', `${base}/down.test`)).toMatchObject({ retry_interval: 0, failure_ts: null });
    expect((await homeserver.server.service(Destinations).state('down.test')).retryAtTs).toBe(0);
    expect(outcome(await root.call('POST', `${base}/down.test/reset_connection`))).toBe('400 M_UNKNOWN');
    expect(outcome(await root.call('POST', `${base}/unknown.test/reset_connection`))).toBe('404 M_NOT_FOUND');
  });

  it('are for administrators only', async () => {
    const endpoints: EndpointRow[] = [
      ['GET', base],
      ['GET', `${base}/up.test`],
      ['GET', `${base}/up.test/rooms`],
      ['POST', `${base}/up.test/reset_connection`],
    ];
    expect(await notRefused(homeserver, alice, endpoints)).toEqual([]);
  });
});
