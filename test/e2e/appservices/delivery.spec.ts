import { buildEvent, roomVersionRules } from '@rookery/events';
import { EventPersister } from '@rookery/rooms';
import { eventually, createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { createRoom, join, leave, ok, outcome, say } from '../rooms/rooms-client.js';
import { acting, databases, FakeService, pause, registerGhost, RegistrationFiles } from './support.js';

describe.each(databases)('an application service is told what concerns it (%s)', (database) => {
  const files = new RegistrationFiles();
  let irc: FakeService;
  let other: FakeService;
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let ghost: TestUser;

  /** Everything that was sent until now has been looked at. */
  const settle = async (): Promise<void> => {
    const marker = `marker ${Math.random()}`;
    await say(ghost, markerRoom, marker);
    await eventually(() => irc.texts.includes(marker));
  };
  let markerRoom: string;

  beforeAll(async () => {
    irc = await FakeService.start();
    other = await FakeService.start();
    homeserver = await createTestHomeserver({
      database,
      fetch: validatedFetch,
      settings: {
        app_service_config_files: [
          files.write('irc', {
            url: irc.url,
            namespaces: {
              users: [{ regex: '@irc_.*', exclusive: true }],
              aliases: [{ regex: '#irc_.*:rookery\\.test', exclusive: true }],
              rooms: [],
            },
          }),
          files.write('other', {
            url: `${other.url}/base/`,
            namespaces: { users: [{ regex: '@other_', exclusive: false }] },
          }),
          files.write('silent', {}),
        ],
      },
    });
    alice = await homeserver.registerUser('alice');
    ghost = await registerGhost(homeserver, 'irc', 'irc_bob');
    markerRoom = await createRoom(ghost);
  });
  afterAll(async () => {
    await homeserver?.stop();
    await irc?.down();
    await other?.down();
    files.remove();
  });

  it('of everything in rooms with one of its users, by its token, and of nothing else', async () => {
    const quiet = await createRoom(alice);
    const roomId = await createRoom(alice, { preset: 'public_chat', name: 'With a ghost' });
    await say(alice, roomId, 'too early');
    await settle();
    await join(ghost, roomId);
    await say(alice, roomId, 'hello, ghost');
    await say(alice, quiet, 'nobody is here');
    await say(ghost, roomId, 'hello, alice');
    await settle();
    expect(irc.texts.filter((text) => !text.startsWith('marker'))).toEqual(['hello, ghost', 'hello, alice']);
    expect(irc.events.some(({ room_id }) => room_id === quiet)).toBe(false);
    const [joined] = irc.events.filter(({ state_key, room_id }) => state_key === ghost.userId && room_id === roomId);
    expect(joined).toMatchObject({
      type: 'm.room.member',
      event_id: expect.any(String),
      sender: ghost.userId,
      content: { membership: 'join' },
      origin_server_ts: expect.any(Number),
      unsigned: { age: expect.any(Number) },
    });
    for (const { authorization, query, method, path } of irc.requests) {
      expect([authorization, [...query]]).toEqual(['Bearer hs-irc', []]);
      if (method === 'PUT') expect(path).toMatch(/^\/_matrix\/app\/v1\/transactions\/\d+$/);
    }
    expect(other.requests).toEqual([]);
  });

  it('of an invite to one of its users, and of what was said until that user left', async () => {
    const roomId = await createRoom(alice, { name: 'Private' });
    await ok(alice, 'POST', `/rooms/${roomId}/invite`, { user_id: ghost.userId });
    await settle();
    const [invite] = irc.events.filter(({ room_id }) => room_id === roomId);
    expect(invite).toMatchObject({ state_key: ghost.userId, content: { membership: 'invite' } });
    expect(invite?.unsigned?.['invite_room_state']).toContainEqual(
      expect.objectContaining({ type: 'm.room.name', content: { name: 'Private' } }),
    );
    await join(ghost, roomId);
    // At once, so that some of it lies in one batch.
    await say(alice, roomId, 'before');
    await leave(ghost, roomId);
    await say(alice, roomId, 'after');
    await settle();
    const seen = irc.events.filter(({ room_id }) => room_id === roomId);
    expect(seen.map(({ type, content }) => content['body'] ?? content['membership'] ?? type)).toEqual([
      'invite',
      'join',
      'before',
      'leave',
    ]);
  });

  it('of an invite from another server, of whose room nothing else is known', async () => {
    const rules = roomVersionRules('10')!;
    const invite = (userId: string) =>
      buildEvent(
        {
          ...{ roomId: '!far:else.test', type: 'm.room.member', stateKey: userId, sender: '@eve:else.test', depth: 7 },
          ...{ content: { membership: 'invite' }, originServerTs: 1, prevEventIds: ['$prev'], authEventIds: ['$auth'] },
        },
        rules,
      );
    const persister = homeserver.server.service(EventPersister);
    await persister.receiveOutOfBand('10', invite(alice.userId));
    await persister.receiveOutOfBand('10', invite(ghost.userId));
    await settle();
    const seen = irc.events.filter(({ room_id }) => room_id === '!far:else.test');
    expect(seen).toMatchObject([
      { state_key: ghost.userId, sender: '@eve:else.test', content: { membership: 'invite' } },
    ]);
  });

  it('of everything in a room with one of its aliases', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await say(alice, roomId, 'no name yet');
    await settle();
    await ok(acting(homeserver, 'irc'), 'PUT', `/directory/room/${encodeURIComponent('#irc_chan:rookery.test')}`, {
      room_id: roomId,
    });
    await say(alice, roomId, 'it has a name');
    await settle();
    expect(irc.texts).toContain('it has a name');
    expect(irc.texts).not.toContain('no name yet');
  });

  it('of what its own user and users of others do, each for itself', async () => {
    const elsewhere = await registerGhost(homeserver, 'other', 'other_eve');
    const roomId = await createRoom(elsewhere, { preset: 'public_chat' });
    await join(acting(homeserver, 'irc'), roomId);
    await say(elsewhere, roomId, 'to both');
    await eventually(() => other.texts.includes('to both') && irc.texts.includes('to both'));
    expect(other.transactions.every(({ path }) => path.startsWith('/base/_matrix/app/v1/transactions/'))).toBe(true);
    expect(other.requests.every(({ authorization }) => authorization === 'Bearer hs-other')).toBe(true);
  });

  it('of the transaction ids with which its users sent something', async () => {
    const path = `/rooms/${markerRoom}/send/m.room.message/own-transaction`;
    await ok(ghost, 'PUT', path, { msgtype: 'm.text', body: 'mine' });
    const mine = await eventually(() => irc.events.find(({ content }) => content['body'] === 'mine'));
    expect(mine.unsigned?.['transaction_id']).toBe('own-transaction');
    await ok(ghost, 'PUT', `/rooms/${markerRoom}/redact/${encodeURIComponent(mine.event_id!)}/own-redaction`, {});
    const redaction = await eventually(() => irc.events.find(({ type }) => type === 'm.room.redaction'));
    expect(redaction.unsigned?.['transaction_id']).toBe('own-redaction');
  });

  it('of users that it has not made yet, before the events that name them', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    irc.onRequest = async ({ method, path }) => {
      if (method !== 'GET' || path !== '/_matrix/app/v1/users/@irc_new:rookery.test') return undefined;
      await registerGhost(homeserver, 'irc', 'irc_new');
      return { status: 200 };
    };
    await ok(alice, 'POST', `/rooms/${roomId}/invite`, { user_id: '@irc_new:rookery.test' });
    await eventually(() => irc.events.some(({ state_key }) => state_key === '@irc_new:rookery.test'));
    irc.onRequest = () => undefined;
    const asked = irc.requests.findIndex(({ path }) => path.startsWith('/_matrix/app/v1/users/'));
    const told = irc.requests.findIndex(({ body }) => JSON.stringify(body ?? '').includes('@irc_new:rookery.test'));
    expect(asked).toBeGreaterThanOrEqual(0);
    expect(asked).toBeLessThan(told);
    expect(irc.requests.filter(({ path }) => path.startsWith('/_matrix/app/v1/users/'))).toHaveLength(1);
    await join(acting(homeserver, 'irc', '@irc_new:rookery.test'), roomId);
  });

  it('of users that it could not say anything about, once more', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    const late = '@irc_late:rookery.test';
    const asked = (): number => irc.requests.filter(({ path }) => path === `/_matrix/app/v1/users/${late}`).length;
    const inviteLate = async (): Promise<void> => {
      const before = irc.events.length;
      await ok(alice, 'POST', `/rooms/${roomId}/invite`, { user_id: late });
      await eventually(() => irc.events.slice(before).some(({ state_key }) => state_key === late));
    };
    const answers = [503];
    irc.onRequest = ({ method }) => (method === 'GET' ? { status: answers.shift() ?? 404 } : undefined);
    await inviteLate();
    await inviteLate();
    expect(asked()).toBe(2);
    // Who does not exist is not asked about with each event.
    await inviteLate();
    irc.onRequest = () => undefined;
    expect(asked()).toBe(2);
  });

  it('of aliases that somebody looks for, so that it can make them', async () => {
    const alias = '#irc_lazy:rookery.test';
    irc.onRequest = async ({ method, path }) => {
      if (method !== 'GET' || path !== `/_matrix/app/v1/rooms/${alias}`) return undefined;
      await createRoom(acting(homeserver, 'irc'), { preset: 'public_chat', room_alias_name: 'irc_lazy' });
      return { status: 200 };
    };
    const [first, second] = await Promise.all(
      [1, 2].map(() => alice.request('POST', `/join/${encodeURIComponent(alias)}`, {})),
    );
    irc.onRequest = () => undefined;
    expect([first?.status, second?.status]).toEqual([200, 200]);
    expect(irc.requests.filter(({ path }) => path.endsWith(alias))).toHaveLength(1);
    expect(outcome(await alice.request('GET', `/directory/room/${encodeURIComponent('#irc_none:rookery.test')}`))).toBe(
      '404 M_NOT_FOUND',
    );
    expect(outcome(await alice.request('GET', `/directory/room/${encodeURIComponent('#none:rookery.test')}`))).toBe(
      '404 M_NOT_FOUND',
    );
    expect(irc.requests.filter(({ path }) => path.endsWith('#none:rookery.test'))).toEqual([]);
  });

  it('in order and without a gap, whatever it answers, down or slow', async () => {
    const said: string[] = [];
    const sayAll = async (from: number, count: number): Promise<void> => {
      for (let n = from; n < from + count; n++) {
        said.push(`line ${n}`);
        await say(ghost, markerRoom, `line ${n}`);
      }
    };
    const lines = () => irc.texts.filter((text) => text.startsWith('line '));
    const answers = [
      { status: 500, body: { errcode: 'M_UNKNOWN' } },
      { status: 200, body: '<html>rubbish, but taken</html>' },
      { status: 403, body: 'no' },
      { status: 302, body: {} },
    ];
    let attempts = 0;
    irc.onRequest = ({ method }) => (method === 'PUT' ? answers[attempts++ % answers.length] : undefined);
    await sayAll(0, 1);
    // A transaction that was tried stays as it is: the others need another.
    await eventually(() => attempts >= 1);
    await sayAll(1, 2);
    await eventually(() => attempts >= 4);
    await irc.down();
    await sayAll(3, 5);
    await pause(300);
    let goOn = (): void => {};
    const held = new Promise<void>((resolve) => (goOn = resolve));
    irc.onRequest = async ({ method }) => {
      if (method === 'PUT') await held.then(() => pause(200));
      return undefined;
    };
    await irc.listen();
    // The service says that it is there, and need not wait for the next attempt.
    await ok(acting(homeserver, 'irc'), 'POST', '/_matrix/client/v1/appservice/irc/ping', {});
    await sayAll(8, 30);
    goOn();
    await eventually(() => lines().length >= said.length);
    irc.onRequest = () => undefined;
    expect(lines()).toEqual(said);
    // What came while one was under way went together.
    const sizes = irc.transactions.slice(-10).map(({ body }) => body.events.length);
    expect(Math.max(...sizes)).toBeGreaterThan(3);
  });

  it('of what happened while the server was away from it, after a restart', async () => {
    await irc.down();
    await say(ghost, markerRoom, 'while it was down 1');
    await say(ghost, markerRoom, 'while it was down 2');
    await homeserver.restart();
    await say(ghost, markerRoom, 'while it was down 3');
    await homeserver.restart();
    await irc.listen();
    await ok(acting(homeserver, 'irc'), 'POST', '/_matrix/client/v1/appservice/irc/ping', {});
    await eventually(() => irc.texts.includes('while it was down 3'));
    expect(irc.texts.filter((text) => text.startsWith('while'))).toEqual(
      [1, 2, 3].map((n) => `while it was down ${n}`),
    );
  });

  it('by the paths of the past where it knows no others', async () => {
    irc.onRequest = ({ method, path }) => {
      if (path.startsWith('/_matrix/app/')) return { status: 404, body: '<h1>Not here</h1>' };
      return method === 'PUT' && path.startsWith('/transactions/') ? { status: 200 } : undefined;
    };
    await say(ghost, markerRoom, 'as of old');
    await eventually(() => irc.texts.includes('as of old'));
    irc.onRequest = () => undefined;
    const [versioned, legacy] = irc.transactions.slice(-2);
    expect([versioned?.path, legacy?.path]).toEqual([
      `/_matrix/app/v1/transactions/${versioned?.txnId}`,
      `/transactions/${versioned?.txnId}`,
    ]);
  });
});
