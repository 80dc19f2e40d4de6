import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { PurgeService } from '@rookery/rooms';
import { eventually, holdUp, type TestHomeserver, type TestUser } from '@rookery/testing';
import type { ServerResponse } from 'node:http';
import { createRoom, databases, ok, say } from '../rooms/rooms-client.js';
import { type Asked, FederationWorld, type PlayedServer, send } from './federation-world.js';
import { sendTransaction, Visit } from './visiting-server.js';

const algorithms = ['m.olm.v1.curve25519-aes-sha2', 'm.megolm.v1.aes-sha2'];
const v1 = '/_matrix/federation/v1';

interface Sync {
  readonly next_batch: string;
  readonly device_lists?: { readonly changed?: string[]; readonly left?: string[] };
  readonly to_device?: {
    readonly events: { readonly type: string; readonly sender: string; readonly content: JsonObject }[];
  };
  readonly presence?: { readonly events: { readonly sender: string; readonly content: JsonObject }[] };
  readonly rooms?: {
    readonly join?: Record<
      string,
      { readonly ephemeral: { readonly events: { readonly type: string; readonly content: JsonObject }[] } }
    >;
  };
}
interface Keys {
  readonly device_keys: Record<string, Record<string, JsonObject & { readonly unsigned?: JsonObject }>>;
  readonly master_keys?: Record<string, JsonObject>;
  readonly failures: Record<string, unknown>;
}

const device = (userId: string, deviceId: string, version = 'one') => ({
  ...{ user_id: userId, device_id: deviceId, algorithms },
  keys: { [`curve25519:${deviceId}`]: `curve ${version}`, [`ed25519:${deviceId}`]: `ed ${version}` },
  signatures: { [userId]: { [`ed25519:${deviceId}`]: 'c2ln' } },
});

describe.each(databases)('devices, messages and news of other servers (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let alice: TestUser;

  beforeAll(async () => {
    world = await FederationWorld.create();
    home = await world.homeserver('home.test', { database });
    alice = await home.registerUser('alice');
  });
  afterAll(() => world?.stop());

  const query = (user: TestUser, ...userIds: string[]): Promise<Keys> =>
    ok<Keys>(user, 'POST', '/keys/query', { device_keys: Object.fromEntries(userIds.map((id) => [id, []])) });
  const sync = (user: TestUser, since?: string): Promise<Sync> =>
    ok<Sync>(user, 'GET', `/sync?timeout=0${since === undefined ? '' : `&since=${since}`}`);

  describe('of a server that speaks for itself', () => {
    let played: PlayedServer;
    let visit: Visit;
    let zoe: string;
    let count = 0;
    /** What it says of zoe's devices. */
    let list: JsonObject;

    beforeEach(async () => {
      played = await world.played(`p${++count}.test`);
      zoe = `@zoe:${played.name}`;
      list = { user_id: zoe, stream_id: 5, devices: [{ device_id: 'PHONE', keys: device(zoe, 'PHONE') }] };
      played.answer = (asked: Asked, response: ServerResponse) => {
        if (asked.url.includes('/user/devices/')) response.end(JSON.stringify(list));
        else if (asked.url.includes('/user/keys/')) response.writeHead(500).end('{}');
        else response.end('{"pdus":{}}');
      };
      visit = await Visit.join(played, home, await createRoom(alice, { preset: 'public_chat' }), zoe);
    });

    const asked = (part: string): Asked[] => played.asked.filter(({ url }) => url.includes(part));
    const edu = (edu_type: string, content: JsonObject) => sendTransaction(played, home, [], [{ edu_type, content }]);
    const update = (streamId: number, previous: number[], deviceId: string, version: string): Promise<unknown> =>
      edu('m.device_list_update', {
        ...{ user_id: zoe, device_id: deviceId, stream_id: streamId, prev_id: previous },
        ...{ keys: device(zoe, deviceId, version), device_display_name: `${deviceId} ${version}` },
      });
    const devicesOf = async (): Promise<Record<string, JsonObject>> => (await query(alice, zoe)).device_keys[zoe] ?? {};
    const curve = async (deviceId: string): Promise<unknown> =>
      ((await devicesOf())[deviceId]?.['keys'] as JsonObject | undefined)?.[`curve25519:${deviceId}`];

    it('asks for a list once, and follows what is told of it', async () => {
      expect(Object.keys(await devicesOf())).toEqual(['PHONE']);
      await devicesOf();
      expect(asked('/user/devices/')).toHaveLength(1);
      const { next_batch: since } = await sync(alice);
      await update(6, [5], 'LAPTOP', 'one');
      await update(7, [6], 'PHONE', 'two');
      expect((await sync(alice, since)).device_lists?.changed).toContain(zoe);
      expect([await curve('PHONE'), await curve('LAPTOP')]).toEqual(['curve two', 'curve one']);
      expect((await devicesOf())['LAPTOP']?.['unsigned']).toEqual({ device_display_name: 'LAPTOP one' });
      await edu('m.device_list_update', {
        user_id: zoe,
        device_id: 'PHONE',
        stream_id: 8,
        prev_id: [7],
        deleted: true,
      });
      expect(Object.keys(await devicesOf())).toEqual(['LAPTOP']);
      expect(asked('/user/devices/')).toHaveLength(1);
    });

    it('takes several changes of one place, and each of them once', async () => {
      await devicesOf();
      await update(6, [5], 'LAPTOP', 'one');
      // As a server tells that met us anew, and had something to tell just then.
      await update(6, [6], 'PHONE', 'two');
      await update(6, [5], 'LAPTOP', 'old');
      expect([await curve('PHONE'), await curve('LAPTOP')]).toEqual(['curve two', 'curve one']);
      expect(asked('/user/devices/')).toHaveLength(1);
    });

    it('asks again where it has missed something', async () => {
      await devicesOf();
      list = { ...list, stream_id: 9, devices: [{ device_id: 'NEW', keys: device(zoe, 'NEW') }] };
      await update(9, [8], 'OTHER', 'one');
      await eventually(() => asked('/user/devices/').length === 2);
      await eventually(async () => Object.keys(await devicesOf()).join() === 'NEW');
      const before = asked('/user/devices/').length;
      await update(10, [9], 'OTHER', 'one');
      expect(Object.keys(await devicesOf()).sort()).toEqual(['NEW', 'OTHER']);
      expect(asked('/user/devices/')).toHaveLength(before);
    });

    it('asks again once the server is back, also after a restart', async () => {
      await devicesOf();
      const { answer } = played;
      played.answer = (_, response) => void response.writeHead(500).end('{}');
      await update(9, [8], 'OTHER', 'one');
      await eventually(() => asked('/user/devices/').length >= 2);
      expect((await query(alice, zoe)).failures).toHaveProperty([played.name]);
      list = { ...list, stream_id: 9, devices: [{ device_id: 'NEW', keys: device(zoe, 'NEW') }] };
      played.answer = answer;
      await home.restart();
      await played.request(home, 'GET', `${v1}/query/profile?user_id=${alice.userId}`);
      await eventually(async () => Object.keys(await devicesOf()).join() === 'NEW');
    });

    describe('at great length', () => {
      const large = (userId: string, deviceId: string, chars = 60_000) => ({
        device_id: deviceId,
        keys: { ...device(userId, deviceId), x: 'x'.repeat(chars) },
      });
      const largeList = (userId: string, count: number): JsonObject => ({
        ...{ user_id: userId, stream_id: 5 },
        devices: Array.from({ length: count }, (_, n) => large(userId, `D${n}`)),
      });
      const tell = (streamId: number, one: ReturnType<typeof large>): Promise<unknown> =>
        edu('m.device_list_update', { ...one, user_id: zoe, stream_id: streamId, prev_id: [streamId - 1] });

      it('is known as far as a list may go, whatever it tells later', async () => {
        list = largeList(zoe, 30);
        const known = Array.from({ length: 17 }, (_, n) => `D${n}`).sort();
        expect(Object.keys(await devicesOf()).sort()).toEqual(known);
        await tell(6, large(zoe, 'MORE'));
        await tell(7, large(zoe, 'SMALL', 1));
        expect(Object.keys(await devicesOf()).sort()).toEqual([...known, 'SMALL'].sort());
        // One that grew beyond is not what it was, and so not known any more.
        await tell(8, large(zoe, 'SMALL', 30_000));
        expect(Object.keys(await devicesOf()).sort()).toEqual(known);
        expect(asked('/user/devices/')).toHaveLength(1);
      });

      it('is asked for again where more was kept of old', async () => {
        await devicesOf();
        const old = JSON.stringify({ keys: large(zoe, 'OLD').keys });
        const rows = Array.from({ length: 30 }, (_, n) => [zoe, `OLD${n}`, old]);
        await home.server
          .service(Database)
          .write((tx) => tx.insertMany('device_lists_remote_cache', ['user_id', 'device_id', 'content'], rows));
        expect(Object.keys(await devicesOf())).toEqual(['PHONE']);
        expect(asked('/user/devices/')).toHaveLength(2);
        await devicesOf();
        expect(asked('/user/devices/')).toHaveLength(2);
      });
    });

    it('keeps no list of somebody who has gone', async () => {
      await devicesOf();
      await visit.send(
        visit.next({ type: 'm.room.member', stateKey: zoe, sender: zoe, content: { membership: 'leave' } }),
      );
      played.answer = (_, response) => void response.writeHead(500).end('{}');
      await eventually(async () => played.name in (await query(alice, zoe)).failures);
    });

    /** The lists that are kept of zoe. */
    const kept = (): Promise<unknown[]> =>
      home.server
        .service(Database)
        .query('SELECT stream_id FROM device_lists_remote_extremeties WHERE user_id = ?', [zoe]);
    const leave = (): Promise<unknown> =>
      visit.send(visit.next({ type: 'm.room.member', stateKey: zoe, sender: zoe, content: { membership: 'leave' } }));
    const hasLeft = (): Promise<boolean> =>
      eventually(async () => {
        const { chunk } = await ok<{ chunk: JsonObject[] }>(
          alice,
          'GET',
          `/rooms/${visit.roomId}/members?membership=leave`,
        );
        return chunk.some((member) => member['state_key'] === zoe);
      });

    it('keeps no list of somebody who goes while it is being kept', async () => {
      // One write comes after the other there.
      if (database === 'sqlite') return;
      const reached = holdUp(home.server.service(Database), 'device_list_kept', 'persist_events');
      const asking = devicesOf();
      await reached;
      const leaving = leave();
      expect(Object.keys(await asking)).toEqual(['PHONE']);
      await leaving;
      await hasLeft();
      expect(await kept()).toEqual([]);
    });

    it('keeps no list of the members of a room that is purged with people in it', async () => {
      await devicesOf();
      const other = `@yan:${played.name}`;
      await Visit.join(played, home, await createRoom(alice, { preset: 'public_chat' }), other);
      list = { ...list, user_id: other };
      await query(alice, other);
      expect(await kept()).toHaveLength(1);
      await home.server.service(PurgeService).purgeRoom(visit.roomId);
      expect(await kept()).toEqual([]);
      const before = asked('/user/devices/').length;
      expect((await query(alice, other)).failures).toEqual({});
      expect(asked('/user/devices/')).toHaveLength(before);
    });

    it('forgets a list of somebody who shares no room and whose devices change', async () => {
      await devicesOf();
      await leave();
      await hasLeft();
      // As a crash or an older release may have left it.
      await home.server
        .service(Database)
        .write((tx) =>
          tx.run('INSERT INTO device_lists_remote_extremeties (user_id, stream_id) VALUES (?, ?)', [zoe, '5']),
        );
      await update(6, [5], 'LAPTOP', 'one');
      await eventually(async () => (await kept()).length === 0);
    });

    it('believes nobody about the users of others', async () => {
      const liar = await world.played(`liar${count}.test`);
      const { next_batch: since } = await sync(alice);
      const content = { user_id: zoe, device_id: 'EVIL', stream_id: 1, prev_id: [], keys: device(zoe, 'EVIL') };
      const message = {
        sender: zoe,
        type: 'm.evil',
        message_id: 'm1',
        messages: { [alice.userId]: { '*': { is: 'evil' } } },
      };
      await sendTransaction(
        liar,
        home,
        [],
        [
          { edu_type: 'm.device_list_update', content },
          { edu_type: 'm.signing_key_update', content: { user_id: zoe, master_key: { user_id: zoe, keys: {} } } },
          { edu_type: 'm.direct_to_device', content: message },
          { edu_type: 'm.typing', content: { room_id: visit.roomId, user_id: zoe, typing: true } },
          { edu_type: 'm.presence', content: { push: [{ user_id: zoe, presence: 'online' }] } },
        ],
      );
      await edu('m.direct_to_device', { ...message, type: 'm.good', message_id: 'm2' });
      const news = await sync(alice, since);
      expect(news.to_device?.events.map(({ type }) => type)).toEqual(['m.good']);
      expect(news.device_lists?.changed ?? []).not.toContain(zoe);
      expect(JSON.stringify(news.rooms ?? {})).not.toContain('m.typing');
      expect(Object.keys(await devicesOf())).toEqual(['PHONE']);
    });

    it('is told the keys of some thousand devices of a user, by their names', async () => {
      const ask = async (...deviceIds: string[]): Promise<string> => {
        const content = { device_keys: { [alice.userId]: deviceIds } };
        const { status, body } = await played.request(home, 'POST', `${v1}/user/keys/query`, content);
        return `${status} ${String(body['errcode'] ?? Object.keys(body['device_keys'] as object).join())}`;
      };
      expect(await ask(...Array.from({ length: 5_000 }, (_, n) => `D${n}`))).toBe(`200 ${alice.userId}`);
      expect(await ask(...Array.from({ length: 5_001 }, (_, n) => `D${n}`))).toBe('400 M_INVALID_PARAM');
      expect(await ask('D', '')).toBe('400 M_BAD_JSON');
    });

    it('takes rubbish without a word', async () => {
      const rubbish: JsonObject[] = [
        {},
        { user_id: zoe },
        { user_id: zoe, device_id: 5, stream_id: 'x' },
        { push: {} },
      ];
      rubbish.push({ push: [null, 5, { user_id: 7 }] }, { [visit.roomId]: { 'm.read': { [zoe]: [] } } });
      rubbish.push({ sender: zoe, type: 'm.x', message_id: 'x', messages: { [alice.userId]: 5 } });
      rubbish.push(JSON.parse(`${'{"a":'.repeat(200)}1${'}'.repeat(200)}`) as JsonObject);
      const types = ['typing', 'receipt', 'presence', 'direct_to_device', 'device_list_update', 'signing_key_update'];
      const edus = [...types, 'nothing'].flatMap((type) =>
        rubbish.map((content) => ({ edu_type: `m.${type}`, content })),
      );
      const transaction = { origin: played.name, origin_server_ts: 1, pdus: [], edus };
      // Not held against the specification, which has another idea of their content.
      const uri = `${v1}/send/rubbish${count}`;
      const signed = played.authorization('PUT', uri, 'home.test', transaction);
      expect(await send(home, 'PUT', uri, signed, JSON.stringify(transaction))).toEqual({
        ...{ status: 200, body: { pdus: {} } },
      });
      await edu('m.direct_to_device', {
        ...{ sender: zoe, type: 'm.fine', message_id: 'f', messages: { [alice.userId]: { '*': {} } } },
      });
      expect((await sync(alice)).to_device?.events.some(({ type }) => type === 'm.fine')).toBe(true);
    });

    it('takes a message to a device once, however often it comes', async () => {
      const { next_batch: since } = await sync(alice);
      const message = {
        sender: zoe,
        type: 'm.once',
        message_id: 'same',
        messages: { [alice.userId]: { '*': { n: 1.5 } } },
      };
      for (let i = 0; i < 3; i++) expect(await edu('m.direct_to_device', message)).toMatchObject({ status: 200 });
      await home.restart();
      await edu('m.direct_to_device', message);
      expect((await sync(alice, since)).to_device?.events).toEqual([
        { sender: zoe, type: 'm.once', content: { n: 1.5 } },
      ]);
    });

    it('shows who types, has read and is there, where the room lets their server', async () => {
      const eventId = await say(alice, visit.roomId, 'read this');
      const { next_batch: since } = await sync(alice);
      const receipt = { [zoe]: { event_ids: [eventId], data: { ts: 1 } } };
      await edu('m.typing', { room_id: visit.roomId, user_id: zoe, typing: true });
      await edu('m.receipt', { [visit.roomId]: { 'm.read': receipt, 'm.read.private': receipt } });
      await edu('m.presence', { push: [{ user_id: zoe, presence: 'online', status_msg: 'here', last_active_ago: 5 }] });
      const news = await eventually(async () => {
        const found = await sync(alice, since);
        return found.presence?.events.some(({ sender }) => sender === zoe) && found;
      });
      const ephemeral = news.rooms?.join?.[visit.roomId]?.ephemeral.events ?? [];
      expect(ephemeral.find(({ type }) => type === 'm.typing')?.content).toEqual({ user_ids: [zoe] });
      expect(ephemeral.find(({ type }) => type === 'm.receipt')?.content).toEqual({
        [eventId]: { 'm.read': { [zoe]: { ts: 1 } } },
      });
      await ok(alice, 'PUT', `/rooms/${visit.roomId}/state/m.room.server_acl/`, { allow: ['*'], deny: [played.name] });
      const later = await say(alice, visit.roomId, 'and this');
      const { next_batch: shut } = await sync(alice, since);
      await edu('m.typing', { room_id: visit.roomId, user_id: zoe, typing: false });
      await edu('m.receipt', { [visit.roomId]: { 'm.read': { [zoe]: { event_ids: [later], data: { ts: 2 } } } } });
      expect((await sync(alice, shut)).rooms?.join?.[visit.roomId]).toBeUndefined();
    });
  });

  describe('of another server like this', () => {
    let other: TestHomeserver;
    let bob: TestUser;

    beforeAll(async () => {
      other = await world.homeserver('other.test', { database });
      bob = await other.registerUser('bob');
      await ok(bob, 'POST', '/keys/upload', {
        device_keys: device(bob.userId, bob.deviceId),
        one_time_keys: Object.fromEntries(
          Array.from({ length: 5 }, (_, i) => [`signed_curve25519:k${i}`, { key: `otk${i}`, signatures: {} }]),
        ),
        fallback_keys: { 'signed_curve25519:fb': { key: 'fallback', fallback: true, signatures: {} } },
      });
    });

    it('hands out each one-time key once, whichever server asks', async () => {
      const claim = async (user: TestUser): Promise<string> => {
        const wanted = { one_time_keys: { [bob.userId]: { [bob.deviceId]: 'signed_curve25519' } } };
        const { one_time_keys: keys } = await ok<{ one_time_keys: Record<string, Record<string, JsonObject>> }>(
          user,
          'POST',
          '/keys/claim',
          wanted,
        );
        return Object.keys(keys[bob.userId]?.[bob.deviceId] ?? {}).join();
      };
      const claims = await Promise.all([alice, bob, alice, bob, alice, alice, bob].map(claim));
      const once = claims.filter((id) => id !== 'signed_curve25519:fb');
      expect(once.sort()).toEqual(Array.from({ length: 5 }, (_, i) => `signed_curve25519:k${i}`));
    });

    it('knows at once what changes in a room with both', async () => {
      const roomId = await createRoom(alice, { preset: 'public_chat' });
      await ok(bob, 'POST', `/join/${encodeURIComponent(roomId)}?via=home.test`, {});
      const seen = async (): Promise<string> =>
        JSON.stringify((await query(alice, bob.userId)).device_keys[bob.userId]?.[bob.deviceId] ?? {});
      await eventually(async () => (await seen()).includes('curve one'));
      const { next_batch: since } = await sync(alice);
      await ok(bob, 'POST', '/keys/upload', { device_keys: device(bob.userId, bob.deviceId, 'two') });
      await eventually(async () => (await sync(alice, since)).device_lists?.changed?.includes(bob.userId));
      await eventually(async () => (await seen()).includes('curve two'));
      const eventId = await say(alice, roomId, 'hello');
      await eventually(async () => JSON.stringify(await sync(bob)).includes(eventId));
      await ok(bob, 'POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, {});
      await ok(bob, 'PUT', `/presence/${bob.userId}/status`, { presence: 'online', status_msg: 'from afar' });
      await ok(bob, 'PUT', `/sendToDevice/m.test/x`, { messages: { [alice.userId]: { '*': { half: 0.5, one: 1 } } } });
      await eventually(async () => {
        const text = JSON.stringify(await sync(alice, since));
        return text.includes('"half":0.5') && text.includes('from afar') && text.includes('m.read');
      });
      await eventually(async () => {
        const found = await ok<{ results: { user_id: string }[] }>(alice, 'POST', '/user_directory/search', {
          search_term: 'bob',
        });
        return found.results.some(({ user_id }) => user_id === bob.userId);
      });
    });
  });
});
