import { Database } from '@rookery/database';
import { signEvent } from '@rookery/events';
import { eventually, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import type { JsonObject } from '@rookery/matrix-types';
import type { ServerResponse } from 'node:http';
import { createRoom, databases, ok, say, setState } from '../rooms/rooms-client.js';
import { ElsewhereRoom } from './elsewhere-room.js';
import { type Asked, FederationWorld, type PlayedServer } from './federation-world.js';
import { Visit } from './visiting-server.js';

interface Transaction {
  readonly path: string;
  readonly origin: string;
  readonly pdus: readonly (JsonObject & { readonly content: JsonObject; readonly type: string })[];
  readonly edus: readonly { readonly edu_type: string; readonly content: JsonObject }[];
}

const isTransaction = ({ method, url }: Asked): boolean => method === 'PUT' && url.includes('/v1/send/');
const transactionOf = ({ url, body }: Asked): Transaction => ({
  path: url,
  ...(JSON.parse(body) as Omit<Transaction, 'path'>),
});
const bodiesIn = (transactions: readonly Transaction[]): unknown[] =>
  transactions.flatMap(({ pdus }) =>
    pdus.filter(({ type }) => type === 'm.room.message').map(({ content }) => content['body']),
  );
const takeAll = (_: Asked, response: ServerResponse): void => void response.end('{"pdus":{}}');
const numbers = (from: number, to: number): string[] => Array.from({ length: to - from + 1 }, (_, i) => `${from + i}`);

describe.each(databases)('sending to other servers (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let alice: TestUser;
  let played: PlayedServer;
  let zoe: string;
  let count = 0;

  const inside = (): Database => home.server.service(Database);

  beforeAll(async () => {
    world = await FederationWorld.create();
    const port = await freePort();
    const settings = {
      enable_metrics: true,
      listeners: [
        {
          port,
          bind_addresses: ['127.0.0.1'],
          type: 'http',
          resources: [{ names: ['client', 'federation', 'metrics'] }],
        },
      ],
      federation: {
        ...{ max_short_retry_delay: 1, max_long_retry_delay: 1, max_long_retries: 2 },
        ...{ destination_min_retry_interval: '1h', destination_max_retry_interval: '1h' },
        // What a played server holds is not to be repeated, however slow the machine.
        client_timeout: '10m',
      },
    };
    home = await world.homeserver('home.test', { database, settings });
    alice = await home.registerUser('alice');
  });
  afterAll(() => world?.stop());
  beforeEach(async () => {
    played = await world.played(`p${++count}.test`);
    played.answer = takeAll;
    zoe = `@zoe:${played.name}`;
  });

  /** Transactions that a played server got, taken or not. */
  const got = (server = played): Transaction[] => server.asked.filter(isTransaction).map(transactionOf);
  const bodies = (server = played): unknown[] => bodiesIn(got(server));
  /** Until an event is noted as the latest of its room that the played server is to get. */
  const isNoted = (eventId: string): Promise<unknown> =>
    eventually(async () => {
      const noted = await inside().get(
        `SELECT 1 FROM destination_rooms d JOIN events e ON e.stream_ordering = d.stream_ordering
         WHERE d.destination = ? AND e.event_id = ?`,
        [played.name, eventId],
      );
      return noted !== undefined;
    });
  const sharedRoom = async (): Promise<Visit> => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    return Visit.join(played, home, roomId, zoe);
  };
  const edusOf = (type: string, server = played): JsonObject[] =>
    got(server).flatMap(({ edus }) => edus.filter(({ edu_type }) => edu_type === type).map(({ content }) => content));

  it('brings events in their order, with different ids, and only its own', async () => {
    const { roomId } = await sharedRoom();
    for (const body of numbers(1, 30)) await say(alice, roomId, body);
    await eventually(() => bodies().length >= 30);
    expect(bodies()).toEqual(numbers(1, 30));
    const transactions = got();
    expect(new Set(transactions.map(({ path }) => path)).size).toBe(transactions.length);
    for (const { origin, pdus } of transactions) {
      expect(origin).toBe('home.test');
      for (const pdu of pdus) expect(String(pdu['sender'])).toMatch(/:home\.test$/);
    }
  });

  /** The played server could not be reached, and waits for its next turn. */
  const isLeftAlone = (server = played): Promise<boolean> =>
    eventually(async () => {
      const sql = 'SELECT 1 FROM destinations WHERE destination = ? AND retry_interval > 0';
      return (await home.server.service(Database).get(sql, [server.name])) !== undefined;
    });

  describe('leaves a server that was out of reach alone', () => {
    const fed = '/_matrix/federation';
    /** The played server could not be reached, and is left alone for an hour. */
    const resting = async (): Promise<Visit> => {
      const visit = await sharedRoom();
      played.answer = (_, response) => void response.writeHead(503).end('{}');
      await say(alice, visit.roomId, 'into the void');
      await isLeftAlone();
      return visit;
    };
    const answers = (path: string, content: (asked: Asked) => unknown): void => {
      played.answer = (asked, response) => {
        if (asked.url.startsWith(`${fed}${path}`)) response.end(JSON.stringify(content(asked)));
        else response.writeHead(503).end('{}');
      };
    };

    it.each<[string, (visit: Visit) => Promise<unknown>]>([
      [
        'invites somebody',
        (visit) => {
          answers('/v2/invite/', ({ body }) => {
            const { event } = JSON.parse(body) as { event: JsonObject };
            return { event: signEvent(visit.parse(event), played.name, played.key).pdu };
          });
          return ok(alice, 'POST', `/rooms/${visit.roomId}/invite`, { user_id: `@yan:${played.name}` });
        },
      ],
      [
        'looks at a profile',
        async () => {
          answers('/v1/query/profile', () => ({ displayname: 'Zoe' }));
          expect(await ok(alice, 'GET', `/profile/${zoe}`)).toEqual({ displayname: 'Zoe' });
        },
      ],
      [
        'looks up an alias',
        async () => {
          answers('/v1/query/directory', () => ({ room_id: '!a:b.test', servers: [] }));
          const path = `/directory/room/${encodeURIComponent(`#a:${played.name}`)}`;
          expect(await ok(alice, 'GET', path)).toMatchObject({ room_id: '!a:b.test' });
        },
      ],
      [
        'looks at its rooms',
        async () => {
          answers('/v1/publicRooms', () => ({ chunk: [] }));
          expect(await ok(alice, 'GET', `/publicRooms?server=${played.name}`)).toEqual({ chunk: [] });
        },
      ],
      [
        'wants to join a room',
        async () => {
          played.answer = (_, response) => void response.writeHead(403).end('{"errcode":"M_FORBIDDEN","error":"No"}');
          const { status } = await alice.request('POST', `/join/!r:${played.name}?via=${played.name}`, {});
          expect(status).toBe(403);
        },
      ],
      [
        'wants to write to somebody',
        async () => {
          answers('/v1/user/keys/query', () => ({ device_keys: { [`@yan:${played.name}`]: {} } }));
          const query = { device_keys: { [`@yan:${played.name}`]: [] } };
          expect(await ok(alice, 'POST', '/keys/query', query)).toMatchObject({ failures: {} });
        },
      ],
    ])('but not when a person waits who %s', async (_, act) => {
      await act(await resting());
    });
  });

  it.each([
    [403, 'M_UNKNOWN_TOKEN'],
    [400, 'M_MISSING_TOKEN'],
    [401, 'M_UNAUTHORIZED'],
    [403, 'M_USER_LOCKED'],
  ])('never hands on what a client would take for the end of its session (%i %s)', async (status, errcode) => {
    const { roomId } = await sharedRoom();
    played.answer = (_, response) =>
      void response.writeHead(status).end(JSON.stringify({ errcode, error: 'No', soft_logout: true }));
    const via = `via=${played.name}`;
    const alias = encodeURIComponent(`#a:${played.name}`);
    const attempts: [method: string, path: string, body?: object][] = [
      ['GET', `/profile/${zoe}`],
      ['GET', `/directory/room/${alias}`],
      ['GET', `/publicRooms?server=${played.name}`],
      ['GET', `/publicRooms?server=${played.name}&since=x`],
      ['POST', `/publicRooms?server=${played.name}`, { filter: { generic_search_term: 'x' } }],
      ['POST', `/join/!r:${played.name}?${via}`, {}],
      ['POST', `/knock/!r:${played.name}?${via}`, {}],
      ['POST', `/rooms/${roomId}/invite`, { user_id: `@yan:${played.name}` }],
      ['GET', `/_matrix/client/v1/media/download/${played.name}/abc`],
      ['GET', `/_matrix/client/v1/media/thumbnail/${played.name}/abc?width=10&height=10`],
      ['GET', `/_matrix/client/v1/room_summary/${alias}`],
      ['GET', `/_matrix/client/v1/rooms/${roomId}/timestamp_to_event?ts=1&dir=b`],
    ];
    for (const [method, path, body] of attempts) {
      const answer = await alice.request<JsonObject>(method as 'GET', path, body);
      expect([path, answer.status === 401, answer.body['errcode'] === errcode]).toEqual([path, false, false]);
      expect(answer.body).not.toHaveProperty('soft_logout');
    }
    const keys = await ok(alice, 'POST', '/keys/query', { device_keys: { [zoe]: [] } });
    expect(JSON.stringify(keys)).not.toContain(errcode);
  });

  it('sends fifty events at most, whatever waits for a slow server', async () => {
    const { roomId } = await sharedRoom();
    const held: ServerResponse[] = [];
    played.answer = (asked, response) => (isTransaction(asked) ? void held.push(response) : takeAll(asked, response));
    await say(alice, roomId, '0');
    await eventually(() => held.length === 1);
    for (const body of numbers(1, 120)) await say(alice, roomId, body);
    expect(held.length).toBe(1);
    played.answer = takeAll;
    held[0]?.end('{"pdus":{}}');
    await eventually(() => bodies().length >= 121);
    expect(bodies()).toEqual(numbers(0, 120));
    expect(Math.max(...got().map(({ pdus }) => pdus.length))).toBe(50);
  });

  it('tells a server that it was sent away, and nothing after that', async () => {
    const { roomId } = await sharedRoom();
    await ok(alice, 'POST', `/rooms/${roomId}/kick`, { user_id: zoe, reason: 'enough' });
    await say(alice, roomId, 'among us');
    const other = await sharedRoom();
    await say(alice, other.roomId, 'for everybody');
    await eventually(() => bodies().includes('for everybody'));
    const kicks = got().flatMap(({ pdus }) => pdus.filter(({ content }) => content['membership'] === 'leave'));
    expect(kicks).toEqual([expect.objectContaining({ state_key: zoe, room_id: roomId })]);
    expect(bodies()).toEqual(['for everybody']);
  });

  it('tells a server that it was shut out, and nothing of that room after that', async () => {
    const { roomId } = await sharedRoom();
    const acl = (deny: string[]) => setState(alice, roomId, 'm.room.server_acl', { allow: ['*'], deny });
    await acl([played.name]);
    await say(alice, roomId, 'among us');
    await acl([]);
    await say(alice, roomId, 'for everybody');
    await eventually(() => bodies().includes('for everybody'));
    expect(bodies()).toEqual(['for everybody']);
    const lists = got().flatMap(({ pdus }) => pdus.filter(({ type }) => type === 'm.room.server_acl'));
    expect(lists[0]?.content['deny']).toEqual([played.name]);
  });

  it('leaves out what a server refuses, and nothing else', async () => {
    const { roomId } = await sharedRoom();
    const held: ServerResponse[] = [];
    played.answer = (asked, response) => (isTransaction(asked) ? void held.push(response) : takeAll(asked, response));
    await say(alice, roomId, 'zero');
    await eventually(() => held.length === 1);
    // These wait, and come together.
    for (const body of ['one', 'poison', 'two', 'three']) await say(alice, roomId, body);
    played.answer = (asked, response) => {
      if (asked.body.includes('poison')) response.writeHead(400).end('{"errcode":"M_BAD_JSON","error":"No"}');
      else takeAll(asked, response);
    };
    held[0]?.end('{"pdus":{}}');
    const taken = (): unknown[] => bodiesIn(got().filter((one) => !JSON.stringify(one).includes('poison')));
    await eventually(() => taken().includes('three'));
    expect(taken()).toEqual(['zero', 'one', 'two', 'three']);
    await say(alice, roomId, 'four');
    await eventually(() => taken().includes('four'));
  });

  it('sends an event once more behind what it rests upon, where a server says that it has not got that', async () => {
    const visit = await sharedRoom();
    played.answer = (asked, response) => {
      if (!isTransaction(asked)) return takeAll(asked, response);
      const missing = transactionOf(asked).pdus.map((pdu) => [visit.parse(pdu).eventId, { error: 'No prev_events' }]);
      response.end(JSON.stringify({ pdus: Object.fromEntries(missing) as JsonObject }));
    };
    // It rests upon the join of the server's own user.
    await say(alice, visit.roomId, 'one');
    await eventually(() => bodies().length > 0);
    await say(alice, visit.roomId, 'two');
    await eventually(() => bodies().length >= 4);
    played.answer = takeAll;
    await say(alice, visit.roomId, 'three');
    await eventually(() => bodies().includes('three'));
    expect(bodies()).toEqual(['one', 'two', 'one', 'two', 'three']);
  });

  it('lets no server that is slow, or talks nonsense, hold up another', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    const others = await Promise.all(['a', 'b', 'c'].map((name) => world.played(`${name}${count}.test`)));
    for (const server of [played, ...others]) {
      server.answer = takeAll;
      await Visit.join(server, home, roomId, `@zoe:${server.name}`);
    }
    const [silent, garbled, huge] = others as [PlayedServer, PlayedServer, PlayedServer];
    const held: ServerResponse[] = [];
    silent.answer = (_, response) => void held.push(response);
    silent.asked.length = 0;
    garbled.answer = (_, response) => void response.end('<html>not what you think');
    huge.answer = (_, response) => void response.end(Buffer.alloc(3_000_000, 'x'));
    for (const body of numbers(1, 20)) await say(alice, roomId, body);
    for (const server of [played, garbled, huge]) {
      await eventually(() => bodies(server).includes('20'));
      // Whatever it says: it has taken them.
      expect(bodies(server)).toEqual(numbers(1, 20));
    }
    // One at a time: it has not answered the first.
    expect(got(silent).length).toBeLessThanOrEqual(1);
    silent.answer = takeAll;
    for (const response of held) response.end('{"pdus":{}}');
    await eventually(() => bodies(silent).includes('20'));
    expect(bodies(silent)).toEqual(numbers(1, 20));
  });

  it('sends on a join that came by way of it, to everybody but the one who brought it', async () => {
    const { roomId } = await sharedRoom();
    const late = await world.played(`late${count}.test`);
    late.answer = takeAll;
    await Visit.join(late, home, roomId, `@yan:${late.name}`);
    const joins = (): unknown[] =>
      got().flatMap(({ pdus }) => pdus.filter((pdu) => pdu['state_key'] === `@yan:${late.name}`));
    await eventually(() => joins().length > 0);
    await say(alice, roomId, 'welcome');
    await eventually(() => bodies().includes('welcome') && bodies(late).includes('welcome'));
    expect(joins()).toEqual([expect.objectContaining({ type: 'm.room.member', sender: `@yan:${late.name}` })]);
    expect(got(late).flatMap(({ pdus }) => pdus.map(({ type }) => type))).toEqual(['m.room.message']);
  });

  it('sends on a join that was answered before a crash, and was not found out about yet', async () => {
    const { roomId } = await sharedRoom();
    const late = await world.played(`late${count}.test`);
    late.answer = takeAll;
    const database = inside();
    const write = database.write.bind(database);
    database.write = (fn, options) =>
      options?.name === 'federation_queue' ? Promise.reject(new Error('It falls over')) : write(fn, options);
    await Visit.join(late, home, roomId, `@yan:${late.name}`);
    await home.restart();
    const joins = (server: PlayedServer): unknown[] =>
      got(server).flatMap(({ pdus }) => pdus.filter((pdu) => pdu['state_key'] === `@yan:${late.name}`));
    await eventually(() => joins(played).length > 0);
    await say(alice, roomId, 'welcome');
    await eventually(() => bodies().includes('welcome') && bodies(late).includes('welcome'));
    expect([joins(played).length, joins(late).length]).toEqual([1, 0]);
  });

  it('brings what was missed once a server is back, and then what comes', async () => {
    const [first, second] = [await sharedRoom(), await sharedRoom()];
    const down = (asked: Asked, response: ServerResponse): void =>
      void response.writeHead(503).end(isTransaction(asked) ? '{}' : undefined);
    played.answer = down;
    for (const body of numbers(1, 5)) await say(alice, first.roomId, body);
    await say(alice, second.roomId, 'there');
    // Three tries, and then peace for an hour.
    await isLeftAlone();
    await say(alice, first.roomId, '6');
    played.answer = takeAll;
    await say(alice, first.roomId, '7');
    expect(got().length).toBeLessThan(10);
    played.asked.length = 0;
    // It speaks to us.
    await played.request(home, 'GET', '/_matrix/federation/v1/query/profile?user_id=@alice:home.test');
    await eventually(() => bodies().includes('7') && bodies().includes('there'));
    // Each of them once, and where it belongs.
    expect(bodies()).toEqual([...numbers(1, 5), 'there', '6', '7']);
    await say(alice, first.roomId, '8');
    await eventually(() => bodies().includes('8'));
    // Once caught up, everything comes.
    for (const body of numbers(9, 12)) await say(alice, first.roomId, body);
    await eventually(() => bodies().includes('12'));
    expect(bodies().slice(-4)).toEqual(numbers(9, 12));
  });

  it('does not wait for an answer that a server lost with a fall, once it speaks again', async () => {
    const { roomId } = await sharedRoom();
    await say(alice, roomId, '1');
    await eventually(() => bodies().length === 1);
    // It takes what it is sent, and falls over: nothing tells. Not before that, as with who is there now: that would be waited for.
    let isDown = false;
    played.answer = (asked, response) => {
      isDown ||= isTransaction(asked) && bodiesIn([transactionOf(asked)]).includes('2');
      if (!isDown) takeAll(asked, response);
    };
    await say(alice, roomId, '2');
    await eventually(() => bodies().includes('2'));
    await say(alice, roomId, '3');
    played.asked.length = 0;
    played.answer = takeAll;
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    await played.request(home, 'GET', '/_matrix/federation/v1/query/profile?user_id=@alice:home.test');
    await eventually(() => bodies().includes('3'), 20_000);
    expect(bodies()).toEqual(['2', '3']);
  });

  it('brings a server that is back nothing from the time when it was not in a room, or shut out', async () => {
    const [left, shut] = [await sharedRoom(), await sharedRoom()];
    const acl = (deny: string[]) => setState(alice, shut.roomId, 'm.room.server_acl', { allow: ['*'], deny });
    played.answer = (asked, response) =>
      isTransaction(asked) ? void response.writeHead(503).end('{}') : takeAll(asked, response);
    await say(alice, left.roomId, 'before');
    await isLeftAlone();
    await ok(alice, 'POST', `/rooms/${left.roomId}/kick`, { user_id: zoe });
    await say(alice, left.roomId, 'among us');
    await acl([played.name]);
    await say(alice, shut.roomId, 'in private');
    await acl([]);
    await say(alice, shut.roomId, 'after');
    await Visit.join(played, home, left.roomId, zoe);
    await say(alice, left.roomId, 'welcome back');
    played.asked.length = 0;
    played.answer = takeAll;
    await played.request(home, 'GET', '/_matrix/federation/v1/query/profile?user_id=@alice:home.test');
    await eventually(() => bodies().includes('after') && bodies().includes('welcome back'));
    expect(bodies()).toEqual(['after', 'welcome back']);
  });

  describe('brings a server that is back what was said since this one came into a room', () => {
    const refusing = (asked: Asked, response: ServerResponse): void =>
      isTransaction(asked) ? void response.writeHead(503).end('{}') : takeAll(asked, response);
    const isBack = async (): Promise<void> => {
      played.asked.length = 0;
      played.answer = takeAll;
      await played.request(home, 'GET', '/_matrix/federation/v1/query/profile?user_id=@alice:home.test');
    };
    /** A room of which the answer to a join names nobody but its creator; the rest of its state comes once `release` is called. */
    const crowded = async (
      isInside: boolean,
    ): Promise<{ roomId: string; far: string; release: () => Promise<void> }> => {
      const far = await world.played(`far${count}.test`);
      const room = new ElsewhereRoom(far, '11');
      if (isInside) {
        const content = { membership: 'join' };
        const member = room.make({ type: 'm.room.member', stateKey: zoe, sender: zoe, content, unsigned: true });
        room.take(signEvent(member, played.name, played.key));
      }
      room.lies.set('send_join', (honest) => ({
        ...honest,
        state: (honest['state'] as JsonObject[]).filter((pdu) => pdu['state_key'] !== zoe),
        ...{ members_omitted: true, servers_in_room: [far.name, played.name] },
      }));
      room.lies.set('send', () => ({ pdus: {} }));
      let open = (): void => {};
      const opened = new Promise<void>((resolve) => (open = resolve));
      room.lies.set('state_ids', async (honest) => {
        await opened;
        return honest;
      });
      played.answer = refusing;
      const { roomId } = room;
      await ok(alice, 'POST', `/join/${roomId}?via=${far.name}`, {});
      const release = async (): Promise<void> => {
        open();
        await ok(alice, 'GET', `/rooms/${roomId}/joined_members`);
      };
      return { roomId, far: far.name, release };
    };

    it('though its members became known later', async () => {
      const { roomId, release } = await crowded(true);
      for (const body of numbers(1, 4)) await say(alice, roomId, body);
      await isLeftAlone();
      await release();
      for (const body of numbers(5, 6)) await say(alice, roomId, body);
      await isBack();
      await eventually(() => bodies().includes('6'));
      expect(bodies()).toEqual(numbers(1, 6));
    });

    it('though its members are not known yet', async () => {
      const { roomId, release } = await crowded(true);
      for (const body of numbers(1, 4)) await say(alice, roomId, body);
      await isLeftAlone();
      await isBack();
      await eventually(() => bodies().includes('4'));
      expect(bodies()).toEqual(numbers(1, 4));
      await release();
    });

    it('but nothing from before its own users came, whatever was told of it', async () => {
      const { roomId, release } = await crowded(false);
      for (const body of numbers(1, 4)) await say(alice, roomId, body);
      await isLeftAlone();
      await release();
      await say(alice, roomId, '5');
      await Visit.join(played, home, roomId, zoe);
      await say(alice, roomId, '6');
      const last = await say(alice, roomId, '7');
      // Until then the last that it is to get is what was said while it was taken for a server of the room.
      await isNoted(last);
      // What was begun before that may be on its way still, with what had been noted then: behind what comes after it, it is not.
      await eventually(async () => {
        await played.request(home, 'GET', '/_matrix/federation/v1/query/profile?user_id=@alice:home.test');
        return bodies().includes('7');
      });
      await isBack();
      await eventually(() => bodies().includes('7'));
      expect(bodies()).toEqual(['6', '7']);
    });

    it('but not the join that it took from this one', async () => {
      const helper = await world.played(`helper${count}.test`);
      const { roomId } = new ElsewhereRoom(helper, '11');
      const { answer } = helper;
      let take = refusing;
      helper.answer = (asked, response) => (isTransaction(asked) ? take : answer)(asked, response);
      await ok(alice, 'POST', `/join/${roomId}?via=${helper.name}`, {});
      await say(alice, roomId, 'one');
      await isLeftAlone(helper);
      helper.asked.length = 0;
      take = takeAll;
      await helper.request(home, 'GET', '/_matrix/federation/v1/query/profile?user_id=@alice:home.test');
      await eventually(() => bodies(helper).includes('one'));
      expect(got(helper).flatMap(({ pdus }) => pdus.map(({ type }) => type))).toEqual(['m.room.message']);
    });

    it('though they changed their names since, and the list of those who are shut out changed', async () => {
      const visit = await sharedRoom();
      const { roomId } = visit;
      played.answer = refusing;
      for (const body of numbers(1, 3)) await say(alice, roomId, body);
      await isLeftAlone();
      await setState(alice, roomId, 'm.room.server_acl', { allow: ['*'], deny: ['evil.test'] });
      await say(alice, roomId, '4');
      const renamed = { membership: 'join', displayname: 'Zoe' };
      await visit.send(visit.next({ type: 'm.room.member', stateKey: zoe, sender: zoe, content: renamed }));
      const name = (): Promise<JsonObject> => ok(alice, 'GET', `/rooms/${roomId}/state/m.room.member/${zoe}`);
      await eventually(async () => (await name())['displayname'] === 'Zoe');
      await say(alice, roomId, '5');
      await isBack();
      await eventually(() => bodies().includes('5'));
      expect(bodies()).toEqual(numbers(1, 5));
    });
  });

  it('brings a server that missed much the latest of each room', async () => {
    const [first, second] = [await sharedRoom(), await sharedRoom()];
    const down = (asked: Asked, response: ServerResponse): void =>
      isTransaction(asked) ? void response.writeHead(503).end('{}') : takeAll(asked, response);
    played.answer = down;
    for (const body of numbers(1, 301)) await say(alice, first.roomId, body);
    const last = await say(alice, second.roomId, 'there');
    await isLeftAlone();
    await isNoted(last);
    played.asked.length = 0;
    played.answer = takeAll;
    await played.request(home, 'GET', '/_matrix/federation/v1/query/profile?user_id=@alice:home.test');
    await eventually(() => bodies().includes('there'));
    expect(bodies()).toEqual(['301', 'there']);
  });

  it('keeps no more than a thousand events in memory for a server that takes its time', async () => {
    const { roomId } = await sharedRoom();
    const held: ServerResponse[] = [];
    played.answer = (asked, response) => (isTransaction(asked) ? void held.push(response) : takeAll(asked, response));
    await say(alice, roomId, '0');
    await eventually(() => held.length === 1);
    const shown = async (pattern: RegExp): Promise<number> =>
      Number(pattern.exec(await (await fetch(`${home.baseUrl}/_synapse/metrics`)).text())?.[1]);
    const pending = (): Promise<number> =>
      shown(/^synapse_federation_transaction_queue_pending_pdus(?:\{.*\})? (\d+)/m);
    const lookedAt = (): Promise<number> =>
      shown(/^synapse_event_processing_positions\{.*name="federation_sender".*\} (\d+)/m);
    // The figure is of all servers: nothing is to wait for any other one.
    await eventually(async () => (await pending()) === 1);
    const seen: number[] = [];
    for (let n = 1; n <= 1_100; n += 50) {
      await Promise.all(numbers(n, n + 49).map((body) => say(alice, roomId, body)));
      seen.push(await pending());
    }
    await say(alice, roomId, 'newest');
    // What is looked at later than that stays in memory.
    const [last] = await inside().query<{ top: number }>('SELECT MAX(stream_ordering) AS top FROM events');
    await eventually(async () => (await lookedAt()) >= Number(last!.top));
    expect(await pending()).toBeLessThan(100);
    expect(Math.max(...seen)).toBeGreaterThan(500);
    expect(Math.max(...seen)).toBeLessThanOrEqual(1_000);
    played.asked.length = 0;
    played.answer = takeAll;
    held[0]?.end('{"pdus":{}}');
    // The database has the rest: that much is told by the latest.
    await eventually(() => bodies().includes('newest'));
    expect(bodies()).toEqual(['newest']);
  });

  it('sends what is said while a server is sent away up to that moment', async () => {
    const rooms = [];
    for (let n = 0; n < 4; n++) rooms.push(await sharedRoom());
    await Promise.all(
      rooms.flatMap(({ roomId }, room) => [
        ...numbers(1, 5).map((body) => say(alice, roomId, `${room}: ${body}`)),
        ok(alice, 'POST', `/rooms/${roomId}/kick`, { user_id: zoe }),
        ...numbers(6, 10).map((body) => say(alice, roomId, `${room}: ${body}`)),
      ]),
    );
    const last = await sharedRoom();
    await say(alice, last.roomId, 'last');
    await eventually(() => bodies().includes('last'));
    const rows = await inside().query<{ json: string }>(
      `SELECT j.json FROM events e JOIN event_json j ON j.stream_ordering = e.stream_ordering
       WHERE ${inside().dialect.anyOf('e.room_id')} ORDER BY e.stream_ordering`,
      [rooms.map(({ roomId }) => roomId)],
    );
    const events = rows.map(({ json }) => JSON.parse(json) as JsonObject & { content: JsonObject });
    const gone = new Set<unknown>();
    const theirs = events.flatMap(({ room_id: roomId, type, content }) => {
      if (content['membership'] === 'leave') gone.add(roomId);
      return type === 'm.room.message' && !gone.has(roomId) ? [content['body']] : [];
    });
    expect(bodies().filter((body) => body !== 'last')).toEqual(theirs);
  });

  it('sends after a crash what it had not looked at, to those who were there then', async () => {
    const { roomId } = await sharedRoom();
    const other = await sharedRoom();
    const late = await world.played(`late${count}.test`);
    const shut = await world.played(`shut${count}.test`);
    for (const server of [late, shut]) server.answer = takeAll;
    await Visit.join(shut, home, other.roomId, `@zoe:${shut.name}`);
    await setState(alice, other.roomId, 'm.room.server_acl', { allow: ['*'], deny: [shut.name] });
    const position = async (): Promise<number> => {
      const row = await inside().get<{ position: number }>(
        "SELECT position FROM stream_cursors WHERE name = 'federation_sender'",
      );
      return row?.position ?? 0;
    };
    const latest = async (): Promise<number> =>
      (await inside().get<{ top: number }>('SELECT MAX(stream_ordering) AS top FROM events'))?.top ?? 0;
    const least = async (): Promise<number> => {
      const { dialect } = inside();
      const row = await inside().get<{ least: number | null }>(
        `SELECT MIN(COALESCE(last_successful_stream_ordering, 0)) AS least FROM destinations WHERE ${dialect.anyOf('destination')}`,
        [[played, late, shut].map(({ name }) => name)],
      );
      return row?.least ?? 0;
    };
    const before = await latest();
    await say(alice, roomId, 'before');
    await ok(alice, 'POST', `/rooms/${roomId}/kick`, { user_id: zoe });
    await say(alice, roomId, 'among us');
    await say(alice, other.roomId, 'before others');
    await Visit.join(late, home, other.roomId, `@zoe:${late.name}`);
    await setState(alice, other.roomId, 'm.room.server_acl', { allow: ['*'] });
    await say(alice, other.roomId, 'after');
    const all = [played, late, shut];
    await eventually(() => all.every((server) => bodies(server).includes('after')));
    const last = await latest();
    await eventually(async () => (await position()) >= last && (await least()) >= last);
    for (const server of all) server.asked.length = 0;
    // As if it had died before it came to these events.
    await inside().write(async (tx) => {
      await tx.run("UPDATE stream_cursors SET position = ? WHERE name = 'federation_sender'", [before]);
      await tx.run('DELETE FROM destination_rooms WHERE stream_ordering > ?', [before]);
      await tx.run('UPDATE destinations SET last_successful_stream_ordering = ?', [before]);
    });
    await home.restart();
    await eventually(() => all.every((server) => bodies(server).includes('after')));
    expect(bodies()).toEqual(['before', 'before others', 'after']);
    expect(got().flatMap(({ pdus }) => pdus.map(({ type }) => type))).toContain('m.room.member');
    // Who joined, or was let in, later.
    expect(bodies(late)).toEqual(['after']);
    expect(bodies(shut)).toEqual(['after']);
  });

  it('goes on after a restart with what nobody has taken', async () => {
    const { roomId } = await sharedRoom();
    const held: ServerResponse[] = [];
    played.answer = (asked, response) => (isTransaction(asked) ? void held.push(response) : takeAll(asked, response));
    for (const body of numbers(1, 3)) await say(alice, roomId, body);
    await ok(alice, 'PUT', '/sendToDevice/m.test/restart', { messages: { [zoe]: { PHONE: { is: 'kept' } } } });
    await eventually(() => held.length === 1);
    played.asked.length = 0;
    played.answer = takeAll;
    await home.restart();
    await eventually(() => bodies().includes('3') && edusOf('m.direct_to_device').length > 0);
    expect(bodies()).toEqual(numbers(1, 3));
    await say(alice, roomId, '4');
    await eventually(() => bodies().includes('4'));
    expect(edusOf('m.direct_to_device')).toEqual([
      expect.objectContaining({ sender: alice.userId, type: 'm.test', messages: { [zoe]: { PHONE: { is: 'kept' } } } }),
    ]);
  });

  it('brings a server that was away for long the latest of each of many rooms, and what is said meanwhile, each once', async () => {
    const rooms: string[] = [];
    for (let n = 0; n < 60; n++) rooms.push((await sharedRoom()).roomId);
    played.answer = (asked, response) =>
      isTransaction(asked) ? void response.writeHead(503).end('{}') : takeAll(asked, response);
    let latestIds: string[] = [];
    for (const body of numbers(1, 6))
      latestIds = await Promise.all(rooms.map((roomId) => say(alice, roomId, `${roomId} ${body}`)));
    await isLeftAlone();
    for (const eventId of latestIds) await isNoted(eventId);
    played.asked.length = 0;
    // It comes back, and something happens while it is told.
    const late: Promise<unknown>[] = [];
    played.answer = (asked, response) => {
      if (isTransaction(asked) && late.length < 2)
        late.push(say(alice, rooms[late.length]!, `meanwhile ${late.length}`));
      takeAll(asked, response);
    };
    await played.request(home, 'GET', '/_matrix/federation/v1/query/profile?user_id=@alice:home.test');
    await eventually(() => bodies().includes('meanwhile 0') && bodies().includes('meanwhile 1'));
    await Promise.all(late);
    await say(alice, rooms[0]!, 'last');
    await eventually(() => bodies().includes('last'));
    const latest = bodies().filter((body) => !/^(?:meanwhile|last)/.test(String(body)));
    expect(latest.toSorted()).toEqual(rooms.map((roomId) => `${roomId} 6`).toSorted());
    expect(new Set(bodies()).size).toBe(bodies().length);
    // And neither is told again after a restart.
    await home.restart();
    await say(alice, rooms[0]!, 'after the restart');
    await eventually(() => bodies().includes('after the restart'));
    expect(bodies().length).toBe(rooms.length + 4);
  });

  it('leaves a server alone over a restart, until it speaks', async () => {
    const { roomId } = await sharedRoom();
    played.answer = (_, response) => void response.writeHead(503).end('{}');
    await say(alice, roomId, '1');
    // Three tries, and then peace for an hour.
    await isLeftAlone();
    await say(alice, roomId, '2');
    await home.restart();
    await say(alice, roomId, '3');
    played.asked.length = 0;
    played.answer = takeAll;
    const other = await world.played(`other${count}.test`);
    other.answer = takeAll;
    await Visit.join(other, home, roomId, `@zoe:${other.name}`);
    await say(alice, roomId, '4');
    await eventually(() => bodies(other).includes('4'));
    expect(got()).toEqual([]);
    await played.request(home, 'GET', '/_matrix/federation/v1/query/profile?user_id=@alice:home.test');
    await eventually(() => bodies().includes('4'));
    expect(bodies()).toEqual(numbers(1, 4));
  });

  it('tells who types, has read and is there; private receipts to nobody', async () => {
    const { roomId } = await sharedRoom();
    const eventId = await say(alice, roomId, 'read this');
    await ok(alice, 'PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: true, timeout: 30_000 });
    const secret = await say(alice, roomId, 'read this in secret');
    await ok(alice, 'POST', `/rooms/${roomId}/receipt/m.read.private/${secret}`, {});
    await ok(alice, 'POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, {});
    await ok(alice, 'POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, { thread_id: 'main' });
    await ok(alice, 'PUT', `/presence/${alice.userId}/status`, {
      presence: 'online',
      status_msg: `for ${played.name}`,
    });
    await eventually(
      () =>
        edusOf('m.typing').length > 0 &&
        edusOf('m.receipt').length > 1 &&
        JSON.stringify(edusOf('m.presence')).includes(`for ${played.name}`),
    );
    expect(edusOf('m.typing')[0]).toEqual({ room_id: roomId, user_id: alice.userId, typing: true });
    const receipts = edusOf('m.receipt').map((content) => JSON.stringify(content));
    expect(receipts[0]).toContain(eventId);
    expect(receipts.join()).not.toContain(secret);
    expect(receipts.filter((text) => text.includes('"thread_id":"main"'))).toHaveLength(1);
  });

  it('tells servers that come into a room who is there, as far as the room lets them take part', async () => {
    const visit = await sharedRoom();
    // It may have been set a moment ago, and is limited.
    const state = { presence: 'online', status_msg: 'about' };
    await eventually(
      async () => (await alice.request('PUT', `/presence/${alice.userId}/status`, state)).status === 200,
      60_000,
    );
    const acl = await setState(alice, visit.roomId, 'm.room.server_acl', { allow: ['*'], deny: ['barred*.test'] });
    await visit.follow(acl);
    const barred = await world.played(`barred${count}.test`);
    const welcome = await world.played(`welcome${count}.test`);
    for (const server of [barred, welcome]) server.answer = takeAll;
    for (const server of [barred, welcome]) {
      const userId = `@yan:${server.name}`;
      const draft = { type: 'm.room.member', stateKey: userId, sender: userId, content: { membership: 'join' } };
      const join = signEvent(visit.make(draft), server.name, server.key);
      expect(Object.values(await visit.send(visit.apply(join)))).toEqual([{}]);
    }
    await eventually(() => edusOf('m.presence', welcome).length > 0);
    expect(edusOf('m.presence', barred)).toEqual([]);
  });

  const keysOf = ({ userId, deviceId }: TestUser, name: string) => ({
    device_keys: {
      ...{ user_id: userId, device_id: deviceId, algorithms: ['m.olm.v1.curve25519-aes-sha2'] },
      keys: { [`curve25519:${deviceId}`]: name, [`ed25519:${deviceId}`]: name },
      signatures: { [userId]: { [`ed25519:${deviceId}`]: 'c2ln' } },
    },
  });

  it('tells of changed devices, each change after the one before', async () => {
    const { roomId } = await sharedRoom();
    const dan = await home.registerUser(`dan${count}`);
    const updates = (): JsonObject[] =>
      edusOf('m.device_list_update').filter((update) => update['user_id'] === dan.userId);
    await ok(dan, 'POST', `/join/${encodeURIComponent(roomId)}`, {});
    await eventually(() => updates().length === 1);
    await ok(dan, 'POST', '/keys/upload', keysOf(dan, `d${count}`));
    await eventually(() => updates().length === 2);
    await ok(dan, 'PUT', `/devices/${dan.deviceId}`, { display_name: 'Phone' });
    await eventually(() => updates().length === 3);
    const [met, first, second] = updates();
    expect(first).toMatchObject({ device_id: dan.deviceId, prev_id: [met?.['stream_id']] });
    expect((first?.['keys'] as JsonObject)['user_id']).toBe(dan.userId);
    expect(second?.['prev_id']).toEqual([first?.['stream_id']]);
    // The keys that prove devices are told of by themselves. What comes after them follows upon the list as it is fetched then.
    const key = 'm'.repeat(43);
    const master = { user_id: dan.userId, usage: ['master'], keys: { [`ed25519:${key}`]: key } };
    await ok(dan, 'POST', '/keys/device_signing/upload', { master_key: master });
    await eventually(() => edusOf('m.signing_key_update').some((update) => update['user_id'] === dan.userId));
    const path = `/_matrix/federation/v1/user/devices/${encodeURIComponent(dan.userId)}`;
    const { body: list } = await played.request(home, 'GET', path);
    expect(list['master_key']).toEqual(master);
    await ok(dan, 'PUT', `/devices/${dan.deviceId}`, { display_name: 'Telephone' });
    await eventually(() => updates().length === 4);
    expect(updates()[3]?.['prev_id']).toEqual([list['stream_id']]);
  });

  it('tells of the devices of whoever joins a room, where that is news', async () => {
    const rooms = [await sharedRoom(), await sharedRoom(), await sharedRoom()] as const;
    const [bob, carol] = [await home.registerUser(`bob${count}`), await home.registerUser(`carol${count}`)];
    const join = (user: TestUser, { roomId }: Visit): Promise<unknown> =>
      ok(user, 'POST', `/join/${encodeURIComponent(roomId)}`, {});
    const updates = ({ userId }: TestUser): JsonObject[] =>
      edusOf('m.device_list_update').filter((update) => update['user_id'] === userId);
    await ok(bob, 'POST', '/keys/upload', keysOf(bob, `b${count}`));
    await join(bob, rooms[0]);
    await eventually(() => updates(bob).length === 1);
    expect(updates(bob)[0]).toMatchObject({ device_id: bob.deviceId, prev_id: [], keys: { user_id: bob.userId } });
    // A server that knows of him already hears no more of him. A device without keys is one, too.
    await join(bob, rooms[1]);
    await join(carol, rooms[1]);
    await eventually(() => updates(carol).length === 1);
    expect(updates(carol)[0]).toMatchObject({ device_id: carol.deviceId, prev_id: [] });
    expect(updates(bob)).toHaveLength(1);
    // What happens while no room is shared is news later, and has the server ask anew. Of her nothing changed.
    for (const { roomId } of rooms.slice(0, 2)) await ok(bob, 'POST', `/rooms/${encodeURIComponent(roomId)}/leave`, {});
    await ok(bob, 'PUT', `/devices/${bob.deviceId}`, { display_name: 'Phone' });
    await join(carol, rooms[2]);
    await join(bob, rooms[2]);
    await eventually(() => updates(bob).length === 2);
    const [told, news] = updates(bob);
    expect(news).toMatchObject({ device_id: bob.deviceId, prev_id: [] });
    expect(news?.['stream_id']).toBeGreaterThan(Number(told?.['stream_id']));
    expect(updates(carol)).toHaveLength(1);
    // What it is told next follows upon the list that it fetched then.
    const path = `/_matrix/federation/v1/user/devices/${encodeURIComponent(bob.userId)}`;
    const { body: list } = await played.request(home, 'GET', path);
    expect(list['stream_id']).toBe(news?.['stream_id']);
    await ok(bob, 'PUT', `/devices/${bob.deviceId}`, { display_name: 'Telephone' });
    await eventually(() => updates(bob).length === 3);
    expect(updates(bob)[2]?.['prev_id']).toEqual([list['stream_id']]);
  });

  /** Has somebody log in once more. @returns an access token */
  const signIn = async ({ userId }: TestUser, deviceId: string): Promise<string> => {
    const password = `password of ${userId.slice(1).split(':')[0]}`;
    const identifier = { type: 'm.id.user', user: userId };
    const login = { type: 'm.login.password', identifier, password, device_id: deviceId };
    const { body } = await home.request<{ access_token: string }>('POST', '/login', login);
    return body.access_token;
  };

  it('tells of a device that is gone, though its user joins another room meanwhile', async () => {
    const first = await sharedRoom();
    const erin = await home.registerUser(`erin${count}`);
    const updates = (): JsonObject[] =>
      edusOf('m.device_list_update').filter((update) => update['user_id'] === erin.userId);
    await ok(erin, 'POST', '/keys/upload', keysOf(erin, `e${count}`));
    await ok(erin, 'POST', `/join/${encodeURIComponent(first.roomId)}`, {});
    await eventually(() => updates().length === 1);
    // One whose id comes behind that of the device that is left, and another before it.
    for (const deviceId of ['zzz', '000']) {
      const another = await sharedRoom();
      const token = await signIn(erin, deviceId);
      const { device_keys } = keysOf({ ...erin, deviceId }, deviceId);
      await home.request('POST', '/keys/upload', { device_keys }, token);
      await eventually(() => updates().some((one) => one['device_id'] === deviceId && one['keys'] !== undefined));
      const told = updates().length;
      const held: ServerResponse[] = [];
      played.answer = (asked, response) => (isTransaction(asked) ? void held.push(response) : takeAll(asked, response));
      await say(alice, first.roomId, deviceId);
      await eventually(() => held.length === 1);
      await home.request('POST', '/logout', {}, token);
      // It waits with what is told of the device.
      await ok(erin, 'POST', `/join/${encodeURIComponent(another.roomId)}`, {});
      const waiting = () =>
        inside().query('SELECT 1 FROM device_lists_outbound_pokes WHERE destination = ? AND user_id = ?', [
          ...[played.name, erin.userId],
        ]);
      await eventually(async () => (await waiting()).length === 2);
      played.answer = takeAll;
      held[0]?.end('{"pdus":{}}');
      await eventually(async () => (await waiting()).length === 0);
      const since = updates().slice(told);
      expect(since.findLast(({ device_id }) => device_id === deviceId)).toMatchObject({ deleted: true });
      expect(since.find(({ device_id }) => device_id === erin.deviceId)).toMatchObject({ prev_id: [] });
    }
  });

  it('tells of changed devices whom a room shuts out, too: the room is shared all the same', async () => {
    const { roomId } = await sharedRoom();
    const fred = await home.registerUser(`fred${count}`);
    const updates = (): JsonObject[] =>
      edusOf('m.device_list_update').filter((update) => update['user_id'] === fred.userId);
    await ok(fred, 'POST', '/keys/upload', keysOf(fred, `f${count}`));
    await setState(alice, roomId, 'm.room.server_acl', { allow: ['*'], deny: [played.name] });
    await ok(fred, 'POST', `/join/${encodeURIComponent(roomId)}`, {});
    await eventually(() => updates().length === 1);
    await ok(fred, 'PUT', `/devices/${fred.deviceId}`, { display_name: 'Phone' });
    await eventually(() => updates().length === 2);
    const [met, changed] = updates();
    expect(changed?.['prev_id']).toEqual([met?.['stream_id']]);
  });

  it('tells keys from devices by what they are, whatever they are called', async () => {
    const { roomId } = await sharedRoom();
    const gina = await home.registerUser(`gina${count}`);
    const of = (type: string): JsonObject[] => edusOf(type).filter((update) => update['user_id'] === gina.userId);
    await ok(gina, 'POST', `/join/${encodeURIComponent(roomId)}`, {});
    await eventually(() => of('m.device_list_update').length === 1);
    const deviceId = 'd'.repeat(43);
    const token = await signIn(gina, deviceId);
    const { device_keys } = keysOf({ ...gina, deviceId }, 'key');
    await home.request('POST', '/keys/upload', { device_keys }, token);
    await eventually(() => of('m.device_list_update').some((update) => update['keys'] !== undefined));
    await home.request('POST', '/logout', {}, token);
    await eventually(() => of('m.device_list_update').some((update) => update['deleted'] === true));
    expect(of('m.device_list_update').at(-1)).toMatchObject({ device_id: deviceId, deleted: true });
    expect(of('m.signing_key_update')).toEqual([]);
    const key = 'g'.repeat(43);
    const master = { user_id: gina.userId, usage: ['master'], keys: { [`ed25519:${key}`]: key } };
    await ok(gina, 'POST', '/keys/device_signing/upload', { master_key: master });
    await eventually(() => of('m.signing_key_update').length === 1);
    expect(of('m.device_list_update').some(({ device_id }) => device_id === key)).toBe(false);
  });
});
