import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  eventually,
  createTestHomeserver,
  type TestHomeserver,
  type TestResponse,
  type TestUser,
} from '@rookery/testing';
import { openApiValidator, validatedFetch } from '../../support/openapi.js';

const notify = '/_matrix/push/v1/notify';
let transaction = 0;

describe.each(['sqlite', 'postgres'] as const)('notifications and searches (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  let gateway: Server;
  const received: unknown[] = [];

  beforeAll(async () => {
    gateway = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        received.push(JSON.parse(Buffer.concat(chunks).toString()));
        response.writeHead(200, { 'content-type': 'application/json' }).end('{"rejected":[]}');
      });
    });
    await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
    const settings = { ip_range_blacklist: [] };
    homeserver = await createTestHomeserver({ database, fetch: validatedFetch, settings });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    const created = await alice.request('POST', '/createRoom', { preset: 'public_chat', name: 'Rook' });
    roomId = String(created.body['room_id']);
    await bob.request('POST', `/rooms/${roomId}/join`, {});
  });
  afterAll(async () => {
    await homeserver?.stop();
    gateway.close();
  });

  const ok = async <T = Record<string, unknown>>(answer: Promise<TestResponse<T>>): Promise<T> => {
    const { status, body } = await answer;
    expect([status, body]).toEqual([200, body]);
    return body;
  };
  const say = async (body: string, more: object = {}): Promise<string> => {
    const path = `/rooms/${roomId}/send/m.room.message/${transaction++}`;
    return String((await ok(alice.request('PUT', path, { msgtype: 'm.text', body, ...more })))['event_id']);
  };

  it('push rules have the shape that the specification gives them', async () => {
    const rule = '/pushrules/global/content/rook';
    await ok(bob.request('PUT', rule, { pattern: 'rook', actions: ['notify', { set_tweak: 'highlight' }] }));
    await ok(bob.request('PUT', '/pushrules/global/override/mine', { conditions: [], actions: [] }));
    await ok(bob.request('PUT', `${rule}/enabled`, { enabled: false }));
    await ok(bob.request('PUT', `${rule}/actions`, { actions: ['notify'] }));
    for (const path of ['/pushrules/', '/pushrules/global/', rule, `${rule}/enabled`, `${rule}/actions`])
      await ok(bob.request('GET', path));
    await ok(bob.request('DELETE', rule));
    await ok(bob.request('DELETE', '/pushrules/global/override/mine'));
  });

  it('a message is pushed, listed, counted and read', async () => {
    const { port } = gateway.address() as AddressInfo;
    const pusher = {
      kind: 'http',
      app_id: 'org.example.app',
      pushkey: 'key',
      app_display_name: 'App',
      device_display_name: 'Phone',
      lang: 'en',
      data: { url: `http://127.0.0.1:${port}${notify}` },
    };
    await ok(bob.request('POST', '/pushers/set', pusher));
    expect(await ok(bob.request('GET', '/pushers'))).toMatchObject({ pushers: [pusher] });
    const eventId = await say('hello', { 'm.mentions': { user_ids: [bob.userId] } });
    await eventually(() => (received.length > 0 ? true : undefined));
    const list = await ok<{ notifications: object[] }>(bob.request('GET', '/notifications?limit=5'));
    expect(list.notifications).toMatchObject([{ read: false, event: { event_id: eventId } }]);
    await ok(bob.request('POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, {}));
    await eventually(() => (received.length > 1 ? true : undefined));
    for (const requestBody of received) {
      const exchange = { method: 'POST', path: notify, requestBody, status: 200, responseBody: { rejected: [] } };
      expect(openApiValidator().check(exchange)).toEqual([]);
    }
    await ok(bob.request('POST', '/pushers/set', { ...pusher, kind: null }));
  });

  it('messages and people are found', async () => {
    const eventId = await say('a needle in a haystack');
    const search = () =>
      ok<{ search_categories: { room_events: { results: object[] } } }>(
        bob.request('POST', '/search', {
          search_categories: {
            room_events: {
              search_term: 'needle',
              keys: ['content.body'],
              order_by: 'recent',
              filter: { limit: 5 },
              event_context: { before_limit: 2, after_limit: 2, include_profile: true },
              include_state: true,
              groupings: { group_by: [{ key: 'room_id' }, { key: 'sender' }] },
            },
          },
        }),
      );
    // A search does not wait for the index longer than some seconds.
    const found = await eventually(async () => {
      const answer = await search();
      return answer.search_categories.room_events.results.length > 0 && answer;
    });
    expect(found.search_categories.room_events.results).toMatchObject([{ result: { event_id: eventId } }]);
    const people = await ok(bob.request('POST', '/user_directory/search', { search_term: 'ali', limit: 5 }));
    expect(people).toEqual({
      limited: false,
      results: [{ user_id: alice.userId, display_name: 'alice', avatar_url: null }],
    });
  });
});
