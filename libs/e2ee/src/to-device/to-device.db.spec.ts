import type { JsonObject } from '@rookery/matrix-types';
import { eachDatabase, eventually, FakeClock, holdUp, type TestDatabase } from '@rookery/testing';
import { DeviceService, SessionService } from '@rookery/users';
import { buildE2ee, type E2eeFixture, fixtureMigrations, requesterOf } from '../e2ee.fixture.js';
import { dropLeftInboxes, leftInboxesSchema } from '../migrations/left-inboxes.migration.js';
import { ToDeviceSending } from './to-device-sending.service.js';
import { inboxKey, ToDeviceService } from './to-device.service.js';

let serial = 0;

eachDatabase('to-device messages', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let fixture: E2eeFixture;
  let service: ToDeviceService;
  const sending = () => fixture.get(ToDeviceSending);
  let alice: string;
  let bob: string;
  let txn = 0;

  const send = (messages: JsonObject, { type = 'm.test', txnId = `t${++txn}`, of = fixture } = {}) =>
    of.get(ToDeviceSending).sendByClient(requesterOf(alice), type, txnId, messages);
  const inbox = async (userId: string, deviceId: string, after = 0, limit = 100, of = service) =>
    of.messages(userId, deviceId, after, of.stream.current(), limit);
  const bodies = async (userId: string, deviceId: string, after = 0, of = service) =>
    (await inbox(userId, deviceId, after, 100, of)).events.map((event) => (event['content'] as JsonObject)['n']);
  const stored = async (userId: string) =>
    (await test.database.query('SELECT 1 AS found FROM device_inbox WHERE user_id = ?', [userId])).length;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    fixture = await buildE2ee({ database: test.database, clock });
    service = fixture.get(ToDeviceService);
  });
  beforeEach(async () => {
    serial++;
    alice = await fixture.user(`alice${serial}`, 'PHONE');
    bob = await fixture.user(`bob${serial}`, 'PHONE', 'LAPTOP');
  });
  afterAll(() => fixture.close());

  it('brings messages to single devices and to all, the single one first', async () => {
    await send({ [bob]: { PHONE: { n: 1 }, '*': { n: 2 }, NONE: { n: 3 } } });
    expect((await inbox(bob, 'PHONE')).events).toEqual([{ type: 'm.test', sender: alice, content: { n: 1 } }]);
    expect(await bodies(bob, 'LAPTOP')).toEqual([2]);
    expect(await stored(bob)).toBe(2);
  });

  it('keeps the order, gives pages, and says where the page ends', async () => {
    for (let n = 0; n < 5; n++) await send({ [bob]: { PHONE: { n } } });
    const first = await inbox(bob, 'PHONE', 0, 3);
    expect(first.events).toHaveLength(3);
    expect(first.position).toBeLessThan(service.stream.current());
    const second = await inbox(bob, 'PHONE', first.position, 3);
    expect(second.events.map((event) => (event['content'] as JsonObject)['n'])).toEqual([3, 4]);
    expect(second.position).toBe(service.stream.current());
  });

  it('gives a message again until the device comes back from behind it, then never', async () => {
    await send({ [bob]: { PHONE: { n: 1 }, LAPTOP: { n: 1 } } });
    const { position } = await inbox(bob, 'PHONE');
    expect(await bodies(bob, 'PHONE')).toEqual([1]);
    await send({ [bob]: { PHONE: { n: 2 } } });
    await service.acknowledge(bob, 'PHONE', position);
    expect(await bodies(bob, 'PHONE')).toEqual([2]);
    expect(await bodies(bob, 'LAPTOP')).toEqual([1]);
    await service.acknowledge(bob, 'PHONE', service.stream.current());
    expect(await bodies(bob, 'PHONE')).toEqual([]);
    // A later one is deleted as well, though nothing was found before.
    await send({ [bob]: { PHONE: { n: 3 } } });
    await service.acknowledge(bob, 'PHONE', service.stream.current());
    expect(await bodies(bob, 'PHONE')).toEqual([]);
    expect(await stored(bob)).toBe(1);
  });

  it('arrives once each over restarts', async () => {
    await send({ [bob]: { PHONE: { n: 1 } } }, { txnId: 'same' });
    const seen = await inbox(bob, 'PHONE');
    await send({ [bob]: { PHONE: { n: 2 } } });
    const again = await buildE2ee({ database: await test.reopen(), clock });
    const restarted = again.get(ToDeviceService);
    // The client sends once more what it got no answer for, and the reader comes back with its token.
    await send({ [bob]: { PHONE: { n: 1 } } }, { txnId: 'same', of: again });
    await restarted.acknowledge(bob, 'PHONE', seen.position);
    expect(await bodies(bob, 'PHONE', seen.position, restarted)).toEqual([2]);
    expect(await bodies(bob, 'PHONE', 0, restarted)).toEqual([2]);
    await again.close();
  });

  it('sends a request once, whoever repeats it', async () => {
    await Promise.all(Array.from({ length: 10 }, () => send({ [bob]: { PHONE: { n: 1 } } }, { txnId: 'x' })));
    await sending().sendByClient(requesterOf(alice, 'OTHER'), 'm.test', 'x', { [bob]: { PHONE: { n: 2 } } });
    await send({ [bob]: { PHONE: { n: 3 } } }, { txnId: 'x', type: 'm.other' });
    expect(await bodies(bob, 'PHONE')).toEqual([1, 2, 3]);
  });

  it('costs no query while nothing arrives', async () => {
    const position = service.stream.current();
    expect(service.mayHaveMessages(bob, 'PHONE', position)).toBe(false);
    await send({ [bob]: { PHONE: { n: 1 } } });
    expect(service.mayHaveMessages(bob, 'PHONE', position)).toBe(true);
    expect(service.mayHaveMessages(bob, 'LAPTOP', position)).toBe(false);
  });

  it('wakes the users who get something', async () => {
    const woken = fixture.notifier.wait(bob, { timeoutMs: 1_000 });
    const asleep = fixture.notifier.wait(alice, { timeoutMs: 1_000 });
    await send({ [bob]: { '*': { n: 1 } } });
    expect(await woken).toBe('news');
    await clock.advance(2_000);
    expect(await asleep).toBe('timeout');
  });

  it('goes with the device', async () => {
    await send({ [bob]: { '*': { n: 1 } } });
    await fixture.get(DeviceService).delete(bob, ['PHONE']);
    await fixture.login(bob, 'PHONE');
    expect(await bodies(bob, 'PHONE')).toEqual([]);
    await fixture.get(SessionService).closeAll(bob);
    expect(await stored(bob)).toBe(0);
  });

  it('goes with the device some at a time, and a new device of the same name gets none of it', async () => {
    const { database } = test;
    await database.write(async (tx) => {
      const positions = await service.stream.allocateIn(tx, 1_300);
      await tx.insertMany(
        'device_inbox',
        ['user_id', 'device_id', 'stream_id', 'message_json'],
        positions.map((position, n) => [bob, 'PHONE', position, JSON.stringify({ type: 'm.old', content: { n } })]),
      );
      service.stream.announceIn(tx, positions.at(-1)!, { changed: { device: [inboxKey(bob, 'PHONE')] }, users: [bob] });
    });
    await send({ [bob]: { LAPTOP: { n: 'other' } } });
    await fixture.get(DeviceService).delete(bob, ['PHONE']);
    expect(await stored(bob)).toBe(801);
    await fixture.login(bob, 'PHONE');
    expect(await bodies(bob, 'PHONE')).toEqual([]);
    await send({ [bob]: { PHONE: { n: 'new' } } });
    expect(await bodies(bob, 'PHONE')).toEqual(['new']);
    // What was acknowledged goes, and nothing else with it at once.
    await service.acknowledge(bob, 'PHONE', service.stream.current());
    expect(await stored(bob)).toBe(801);
    await send({ [bob]: { PHONE: { n: 'newer' } } });
    await clock.advance(3_600_000);
    await eventually(async () => (await stored(bob)) === 2);
    expect(await bodies(bob, 'PHONE')).toEqual(['newer']);
    expect(await bodies(bob, 'LAPTOP')).toEqual(['other']);
    await eventually(async () => (await database.query('SELECT 1 AS x FROM device_inboxes_left')).length === 0);
  });

  it('goes before a program comes that does not know what is left of deleted devices', async () => {
    const { database } = test;
    await database.write(async (tx) => {
      const columns = ['user_id', 'device_id', 'stream_id', 'message_json'];
      await tx.insertMany(
        'device_inbox',
        columns,
        [1, 2, 3].map((position) => [bob, 'GONE', position, '{}']),
      );
      await tx.insertMany('device_inboxes_left', ['user_id', 'device_id', 'stream_id'], [[bob, 'GONE', 2]]);
      await dropLeftInboxes(tx);
      await leftInboxesSchema(tx);
    });
    expect(await database.query('SELECT stream_id FROM device_inbox WHERE user_id = ?', [bob])).toEqual([
      { stream_id: 3 },
    ]);
  });

  it('goes with a device that is deleted while it is sent', async () => {
    const reached = holdUp(test.database, 'to_device_send', 'session_close_devices');
    const sent = send({ [bob]: { '*': { n: 1 } } });
    await reached;
    await fixture.get(DeviceService).delete(bob, ['LAPTOP', 'PHONE']);
    await sent;
    expect(await stored(bob)).toBe(0);
  });

  it('limits requests for room keys, by device', async () => {
    const type = 'm.room_key_request';
    for (let i = 0; i < 3; i++) await send({ [bob]: { PHONE: {} } }, { type });
    await expect(send({ [bob]: { PHONE: {} } }, { type })).rejects.toMatchObject({ status: 429 });
    await send({ [bob]: { PHONE: {} } });
    await sending().sendByClient(requesterOf(alice, 'OTHER'), type, 'x', { [bob]: { PHONE: {} } });
    await clock.advance(2_000);
    await send({ [bob]: { PHONE: {} } }, { type });
  });

  it('refuses what has the wrong shape or size', async () => {
    await expect(send({ nobody: {} })).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    await expect(send({ [bob]: [] })).rejects.toMatchObject({ errcode: 'M_BAD_JSON' });
    await expect(send({ [bob]: { PHONE: 'text' } })).rejects.toMatchObject({ errcode: 'M_BAD_JSON' });
    await expect(send({ [bob]: { PHONE: { x: 'y'.repeat(66_000) } } })).rejects.toMatchObject({ status: 413 });
    await expect(send({ [bob]: {} }, { txnId: 'x'.repeat(300) })).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    const many = Object.fromEntries(Array.from({ length: 10_001 }, (_, index) => [`D${index}`, {}]));
    await expect(send({ [bob]: many })).rejects.toMatchObject({ status: 413 });
    // A request that was refused was not made: it may be made properly.
    await expect(send({ [bob]: 5 }, { txnId: 'again' })).rejects.toMatchObject({ status: 400 });
    await send({ [bob]: { PHONE: { n: 9 } } }, { txnId: 'again' });
    expect(await bodies(bob, 'PHONE')).toEqual([9]);
  });

  it('queues messages for other servers until they have got them', async () => {
    const since = service.stream.current();
    await send({ '@d:far.org': { D1: { n: 1 }, '*': { n: 2 } }, '@e:far.org': { E: {} }, '@f:near.org': { F: {} } });
    const upTo = service.stream.current();
    expect(await service.outboxDestinations()).toEqual(['far.org', 'near.org']);
    const [message, ...more] = await service.outbox('far.org', since, upTo, 10);
    expect(more).toEqual([]);
    expect(JSON.parse(message?.json ?? '')).toEqual({
      sender: alice,
      type: 'm.test',
      message_id: expect.stringMatching(/^[A-Za-z]{24}$/),
      messages: { '@d:far.org': { D1: { n: 1 }, '*': { n: 2 } }, '@e:far.org': { E: {} } },
    });
    await service.delivered('far.org', upTo);
    expect(await service.outbox('far.org', since, upTo, 10)).toEqual([]);
    expect(await service.outbox('near.org', since, upTo, 10)).toHaveLength(1);
  });

  it('counts messages for all devices as many times as there are devices', async () => {
    const rows = (userId: string, count: number) =>
      Array.from({ length: count }, (_, n) => [userId, `D${String(n).padStart(4, '0')}`]);
    const devices = [...rows(alice, 110), ...rows(bob, 600)];
    await test.database.write((tx) => tx.insertMany('devices', ['user_id', 'device_id'], devices));
    const large = { n: 1, x: 'y'.repeat(60_000) };
    await expect(send({ [bob]: { '*': large } }, { txnId: 'large' })).rejects.toMatchObject({ status: 413 });
    expect(await stored(bob)).toBe(0);
    await send({ [bob]: { '*': { n: 2 }, PHONE: large } }, { txnId: 'large' });
    expect(await stored(bob)).toBe(602);
    expect([await bodies(bob, 'PHONE'), await bodies(bob, 'D0599')]).toEqual([[1], [2]]);

    const edu = (messageId: string, messages: JsonObject): JsonObject => ({
      ...{ sender: '@d:far.org', type: 'm.test', message_id: `${messageId} ${serial}`, messages },
    });
    const receive = (messageId: string, messages: JsonObject, origin = 'far.org') =>
      sending().receive(origin, { ...edu(messageId, messages), sender: `@d:${origin}` });
    await receive('too large', { [bob]: { '*': large } });
    expect(await stored(bob)).toBe(602);
    // Some 6 MB each: more than a server may have us write of what it has not sent comes again later, and is not lost.
    let taken = 0;
    const refused = await (async () => {
      for (; taken < 10; taken++) await receive(`m${taken}`, { [alice]: { '*': { ...large, n: taken } } });
    })().catch((error: unknown) => error);
    expect(refused).toMatchObject({ status: 429 });
    expect(taken).toBe(6);
    expect(await bodies(alice, 'D0109')).toEqual([0, 1, 2, 3, 4, 5]);
    await receive('single', { [alice]: { D0109: { n: 'single' } } });
    await receive('else', { [alice]: { '*': { n: 'else' } } }, 'else.org');
    await clock.advance(10_000);
    for (const messageId of ['m6', 'm5', 'm6']) await receive(messageId, { [alice]: { '*': { n: messageId } } });
    expect(await bodies(alice, 'D0109')).toEqual([0, 1, 2, 3, 4, 5, 'single', 'else', 'm6']);
  });

  it('takes messages of other servers once, and only of their users for ours', async () => {
    const edu = (more: JsonObject = {}): JsonObject => ({
      ...{ sender: '@d:far.org', type: 'm.test', message_id: `m${serial}` },
      messages: { [bob]: { PHONE: { n: 1 } }, '@x:else.org': { X: {} } },
      ...more,
    });
    await sending().receive('far.org', edu());
    await sending().receive('far.org', edu());
    await sending().receive('far.org', edu({ sender: alice, message_id: 'a' }));
    await sending().receive('far.org', edu({ sender: '@d:else.org', message_id: 'b' }));
    await sending().receive('far.org', edu({ messages: { [bob]: { PHONE: 5 } }, message_id: 'c' }));
    await sending().receive('far.org', edu({ message_id: undefined }));
    expect((await inbox(bob, 'PHONE')).events).toEqual([{ type: 'm.test', sender: '@d:far.org', content: { n: 1 } }]);
    expect(await service.outboxDestinations()).not.toContain('else.org');
    // Nothing is kept of what nobody gets: anybody could fill the table with names.
    const noted = async () =>
      (await test.database.query('SELECT 1 AS found FROM device_federation_inbox WHERE message_id = ?', [
        `later${serial}`,
      ])) as unknown[];
    const later = edu({ messages: { [bob]: { TABLET: { n: 0 } } }, message_id: `later${serial}` });
    expect(await sending().receive('far.org', later)).toBe(false);
    expect(await noted()).toHaveLength(0);
    await fixture.login(bob, 'TABLET');
    expect(await sending().receive('far.org', later)).toBe(true);
    expect(await sending().receive('far.org', later)).toBe(false);
    expect(await noted()).toHaveLength(1);
    expect(await bodies(bob, 'TABLET')).toEqual([0]);
    // What is wrong with one is none of the others' business.
    const messages = { [bob]: { LAPTOP: 5, PHONE: { n: 2 } }, nobody: { A: {} }, '@x:else.org': 5, [alice]: [] };
    await sending().receive('far.org', edu({ messages, message_id: 'd' }));
    expect((await inbox(bob, 'PHONE')).events.at(-1)).toEqual({
      ...{ type: 'm.test', sender: '@d:far.org', content: { n: 2 } },
    });
  });
});
