import { setImmediate as nextTurn } from 'node:timers/promises';
import { databaseMigrations, type Tx } from '@rookery/database';
import {
  buildEvent,
  hasValidSignature,
  type RoomEvent,
  roomVersionRules,
  SigningKey,
  VerifyKey,
} from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { ModuleDispatcher, ModuleRegistry } from '@rookery/module-host';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, eventually, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountDataService, usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { RoomHooks } from '../hooks.js';
import { InvitePolicy } from '../membership/invite-policy.js';
import { JoinService } from '../membership/join.service.js';
import { MembershipService } from '../membership/membership.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { InboundEvents } from '../pipeline/inbound-events.service.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { EventStore } from '../store/event-store.js';
import { EventCreation } from './event-creation.service.js';

/** Modules here think for as long as something else takes, which on a busy machine is long. */
const policy = { onError: 'deny' as const, timeLimitMs: 120_000 };

eachDatabase('modules and hooks', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let rooms: RoomsFixture;
  const alice = requesterOf('alice');
  const bob = requesterOf('bob');
  const asked: string[] = [];
  const contexts: string[] = [];
  const drafts: unknown[] = [];
  const looks: unknown[][] = [];
  let hold: Promise<void> | undefined;
  let isBroken = false;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    const registry = new ModuleRegistry(() => {});
    registry.addModule('test');
    registry.add('test', policy, 'spamChecker', {
      checkEventForSpam: async (event, context) => {
        contexts.push(`spam ${context.source} ${context.origin}`);
        asked.push(`spam ${event.type} ${event.eventId.length > 10}`);
        const body = String(event.content['body']);
        if (body.startsWith('slow')) await hold;
        if (isBroken && body.endsWith('broken')) throw new Error('broken');
        return body.endsWith('spam') ? { errcode: 'M_FORBIDDEN', message: 'No spam here' } : 'NOT_SPAM';
      },
      userMayJoinRoom: (userId) => (userId === '@unwanted:example.org' ? { errcode: 'M_FORBIDDEN' } : 'NOT_SPAM'),
      userMayInvite: (inviter, invitee, _roomId, context) => {
        asked.push(`invite ${inviter} ${context.source} ${context.origin}`);
        if (invitee === '@quiet:example.org') return 'DROP_SILENTLY';
        return invitee === '@unwanted:example.org' ? { errcode: 'M_FORBIDDEN' } : 'NOT_SPAM';
      },
      federatedUserMayInvite: (event, context) => {
        asked.push(`federated ${event.sender} ${context.source} ${context.origin}`);
        return event.sender === '@spammer:elsewhere.org' ? 'DROP_SILENTLY' : 'NOT_SPAM';
      },
    });
    registry.add('test', policy, 'thirdPartyRules', {
      checkEventAllowed: async (event, state, context) => {
        contexts.push(`allowed ${context.source} ${context.origin}`);
        const name = await state.get('m.room.name');
        drafts.push(event.content['body']);
        if (event.content['body'] === 'slow look') {
          const look = async (): Promise<unknown[]> => {
            const topic = async (): Promise<unknown> => (await state.get('m.room.topic'))?.content['topic'];
            const bobs = await state.get('m.room.member', bob.userId);
            return [await topic(), bobs?.content['membership'], (await state.all()).length];
          };
          looks.push(await look());
          await hold;
          looks.push(await look());
        }
        if (event.content['body'] === 'slow draft') {
          await new Promise((resolve) => setTimeout(resolve, 20));
          return { allowed: true, replacement: { content: { ...event.content, body: 'rewritten slowly' } } };
        }
        if (event.content['body'] === 'what is this?') {
          return { allowed: true, replacement: { content: { ...event.content, body: String(name?.content['name']) } } };
        }
        return event.content['body'] !== 'forbidden';
      },
    });
    const modules = new ModuleDispatcher();
    modules.install(registry.seal());
    rooms = await buildRooms({ database: test.database, clock, modules });
  });
  afterAll(() => rooms.close());

  const create = async (): Promise<string> =>
    (await rooms.get(RoomCreation).create(alice, { preset: 'public_chat', name: 'The room' })).roomId;
  const say = (roomId: string, body: string, requester = alice) =>
    rooms.get(EventCreation).send(requester, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body } });
  const bodyOf = async (roomId: string, eventId: string): Promise<unknown> =>
    ((await rooms.get(RoomReadingService).event(alice, roomId, eventId)).content as JsonObject)['body'];

  /** Another server's user joins. */
  const zoesJoin = async (roomId: string, body: string): Promise<RoomEvent> => {
    const state = await rooms.get(RoomStateReader).current(roomId);
    const head = state.reduce((a, b) => (a.event.depth > b.event.depth ? a : b)).event;
    const idOf = (type: string): string => state.find(({ event }) => event.type === type)!.event.eventId;
    return buildEvent(
      {
        ...{ roomId, type: 'm.room.member', stateKey: '@zoe:elsewhere.org', sender: '@zoe:elsewhere.org' },
        content: { membership: 'join', body },
        ...{ originServerTs: clock.nowMs(), depth: head.depth + 1, prevEventIds: [head.eventId] },
        authEventIds: ['m.room.power_levels', 'm.room.join_rules'].map(idOf),
      },
      head.rules,
    );
  };

  it('let a spam checker see the finished event and refuse it', async () => {
    const roomId = await create();
    asked.length = 0;
    await expect(say(roomId, 'spam')).rejects.toMatchObject({
      status: 403,
      errcode: 'M_FORBIDDEN',
      message: 'No spam here',
    });
    expect(asked).toEqual(['spam m.room.message true']);
    const fine = await say(roomId, 'fine');
    expect(await bodyOf(roomId, fine.eventId)).toBe('fine');
  });

  it('let third-party rules refuse and rewrite drafts, with the state before them', async () => {
    const roomId = await create();
    await expect(say(roomId, 'forbidden')).rejects.toMatchObject({ status: 403 });
    const rewritten = await say(roomId, 'what is this?');
    expect(await bodyOf(roomId, rewritten.eventId)).toBe('The room');
  });

  it('do not hold up others in the room while a module thinks', async () => {
    const roomId = await create();
    await rooms.get(JoinService).join(bob, roomId);
    let release = (): void => {};
    hold = new Promise((resolve) => (release = resolve));
    const slow = say(roomId, 'slow');
    const quick = await say(roomId, 'quick', bob);
    expect(await bodyOf(roomId, quick.eventId)).toBe('quick');
    release();
    expect(await bodyOf(roomId, (await slow).eventId)).toBe('slow');
    await say(roomId, 'merged');
    const heads = await test.database.query('SELECT event_id FROM event_forward_extremities WHERE room_id = ?', [
      roomId,
    ]);
    expect(heads.length).toBe(1);
  });

  it.each([
    ['stands still', false],
    ['goes on', true],
  ])('may think about an event while the room %s: it is stored with the signature and its place', async (_, goesOn) => {
    const roomId = await create();
    let release = (): void => {};
    hold = new Promise((resolve) => (release = resolve));
    asked.length = 0;
    const slow = say(roomId, 'slow');
    await eventually(() => asked.length > 0);
    const quick = goesOn ? await say(roomId, 'quick') : undefined;
    await nextTurn();
    release();
    const { eventId } = await slow;
    const stored = (await rooms.get(EventStore).many([eventId])).get(eventId)!;
    const key = rooms.get(SigningKey);
    expect(hasValidSignature(stored.event, 'example.org', key.keyId, VerifyKey.parse(key.publicKey)!)).toBe(true);
    expect(stored.event.prevEventIds).not.toContain(quick?.eventId);
    expect(stored.softFailed).toBe(false);
    const [alices] = await test.database.query<{ event_id: string }>(
      "SELECT event_id FROM current_state_events WHERE room_id = ? AND type = 'm.room.member'",
      [roomId],
    );
    expect(stored.event.authEventIds).toContain(alices?.event_id);
    const heads = await test.database.query<{ event_id: string }>(
      'SELECT event_id FROM event_forward_extremities WHERE room_id = ? ORDER BY event_id',
      [roomId],
    );
    expect(heads.map(({ event_id: id }) => id)).toEqual([eventId, quick?.eventId].filter(Boolean).sort());
  });

  it('refuses what was forbidden while a module thought', async () => {
    const roomId = await create();
    await rooms.get(JoinService).join(bob, roomId);
    let release = (): void => {};
    hold = new Promise((resolve) => (release = resolve));
    const refused = expect(say(roomId, 'slow', bob)).rejects.toMatchObject({ status: 403 });
    await rooms.get(MembershipService).ban(alice, roomId, bob.userId);
    release();
    await refused;
  });

  it('ask before joins and invites', async () => {
    const roomId = await create();
    const unwanted = requesterOf('unwanted');
    await expect(rooms.get(JoinService).join(unwanted, roomId)).rejects.toMatchObject({ status: 403 });
    await expect(rooms.get(MembershipService).invite(alice, roomId, unwanted.userId)).rejects.toMatchObject({
      status: 403,
    });
  });

  it('may have an invite look sent that goes nowhere', async () => {
    const roomId = await create();
    const quiet = requesterOf('quiet').userId;
    await rooms.get(MembershipService).invite(alice, roomId, quiet);
    const made = await rooms.get(RoomCreation).create(alice, { preset: 'private_chat', invite: [quiet, bob.userId] });
    for (const id of [roomId, made.roomId]) {
      expect(await rooms.get(MembershipReader).inRoom(quiet, id)).toBeUndefined();
    }
    expect((await rooms.get(MembershipReader).inRoom(bob.userId, made.roomId))?.membership).toBe('invite');
    const stranger = requesterOf('stranger');
    await expect(rooms.get(MembershipService).invite(stranger, roomId, quiet)).rejects.toMatchObject({ status: 403 });
  });

  it('are asked about invites of other servers, by both callbacks and with the origin', async () => {
    const inviteBy = (sender: string, target: string): RoomEvent =>
      buildEvent(
        {
          roomId: '!room:elsewhere.org',
          type: 'm.room.member',
          stateKey: target,
          sender,
          content: { membership: 'invite' },
          originServerTs: 1,
          depth: 1,
          prevEventIds: [],
          authEventIds: [],
        },
        roomVersionRules('11')!,
      );
    const check = (sender: string, target: string): Promise<boolean> =>
      rooms.get(InvitePolicy).checkRemote('relay.org', inviteBy(sender, target));
    asked.length = 0;
    expect(await check('@zoe:elsewhere.org', bob.userId)).toBe(true);
    expect(asked).toEqual([
      'federated @zoe:elsewhere.org federation relay.org',
      'invite @zoe:elsewhere.org federation relay.org',
    ]);
    expect(await check('@zoe:elsewhere.org', '@quiet:example.org')).toBe(false);
    expect(await check('@spammer:elsewhere.org', bob.userId)).toBe(false);
    await expect(check('@zoe:elsewhere.org', '@unwanted:example.org')).rejects.toMatchObject({ status: 403 });
    await rooms
      .get(AccountDataService)
      .set(bob.userId, undefined, 'm.invite_permission_config', { default_action: 'block' }, {});
    await expect(check('@zoe:elsewhere.org', bob.userId)).rejects.toMatchObject({ errcode: 'M_INVITE_BLOCKED' });
  });

  it('learn which server sent a remote event', async () => {
    const request = { preset: 'public_chat', room_version: '11' } as const;
    const { roomId } = await rooms.get(RoomCreation).create(alice, request);
    const state = await rooms.get(RoomStateReader).current(roomId);
    const head = state.reduce((a, b) => (a.event.depth > b.event.depth ? a : b)).event;
    const idOf = (type: string): string => state.find(({ event }) => event.type === type)!.event.eventId;
    const event = buildEvent(
      {
        roomId,
        type: 'm.room.member',
        stateKey: '@zoe:elsewhere.org',
        sender: '@zoe:elsewhere.org',
        content: { membership: 'join' },
        originServerTs: clock.nowMs(),
        depth: head.depth + 1,
        prevEventIds: [head.eventId],
        authEventIds: ['m.room.create', 'm.room.power_levels', 'm.room.join_rules'].map(idOf),
      },
      roomVersionRules('11')!,
    );
    contexts.length = 0;
    expect(await rooms.get(InboundEvents).receive('relay.org', roomId, { event })).toMatchObject({ kind: 'accepted' });
    expect(contexts).toEqual(['allowed federation relay.org', 'spam federation relay.org']);

    // What is thought about for long holds up nobody, and is asked about once.
    const message = (body: string): RoomEvent =>
      buildEvent(
        {
          ...{ roomId, type: 'm.room.message', sender: '@zoe:elsewhere.org', content: { msgtype: 'm.text', body } },
          originServerTs: clock.nowMs(),
          depth: head.depth + 2,
          prevEventIds: [event.eventId],
          authEventIds: [...['m.room.create', 'm.room.power_levels'].map(idOf), event.eventId],
        },
        roomVersionRules('11')!,
      );
    for (const [body, verdict] of [
      ['slow', 'accepted'],
      ['slow spam', 'softFailed'],
    ] as const) {
      let release = (): void => {};
      hold = new Promise((resolve) => (release = resolve));
      contexts.length = 0;
      const receiving = rooms.get(InboundEvents).receive('relay.org', roomId, { event: message(body) });
      const quick = await say(roomId, `quick, ${verdict}`);
      expect(await bodyOf(roomId, quick.eventId)).toBe(`quick, ${verdict}`);
      release();
      expect(await receiving).toMatchObject({ kind: verdict });
      expect(contexts.filter((context) => context.includes('relay.org'))).toEqual([
        'allowed federation relay.org',
        'spam federation relay.org',
      ]);
    }
  });

  it.each(['broken', 'slow and broken'])('lose nothing of other servers where they fail (%s)', async (body) => {
    const roomId = await create();
    const event = await zoesJoin(roomId, body);
    isBroken = true;
    hold = new Promise((resolve) => setTimeout(resolve, 20));
    const receive = () => rooms.get(InboundEvents).receive('elsewhere.org', roomId, { event });
    expect(await receive()).toEqual({ kind: 'unjudged' });
    expect((await rooms.get(EventStore).many([event.eventId])).size).toBe(0);
    isBroken = false;
    expect(await receive()).toMatchObject({ kind: 'accepted' });
  });

  it('are asked once about what they think about for long, and what they said counts', async () => {
    const roomId = await create();
    asked.length = 0;
    const refused = say(roomId, 'slow spam');
    await expect(refused).rejects.toMatchObject({ status: 403, message: 'No spam here' });
    expect(asked).toEqual(['spam m.room.message true']);
    asked.length = 0;
    const rewritten = await say(roomId, 'slow draft');
    expect(await bodyOf(roomId, rewritten.eventId)).toBe('rewritten slowly');
    expect(drafts.filter((body) => body === 'slow draft').length).toBe(1);
    expect(asked).toEqual(['spam m.room.message true']);
  });

  it('see one state however long they look', async () => {
    const roomId = await create();
    const setTopic = (topic: string) =>
      rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.topic', stateKey: '', content: { topic } });
    await setTopic('one');
    // Once in the room's turn; and again outside of it, where what was said about it counts no more.
    for (const isRemote of [false, true]) {
      looks.length = 0;
      let release = (): void => {};
      hold = new Promise((resolve) => (release = resolve));
      const state = await rooms.get(RoomStateReader).current(roomId);
      const looking = isRemote
        ? rooms.get(InboundEvents).receive('relay.org', roomId, { event: await zoesJoin(roomId, 'slow look') })
        : say(roomId, 'slow look');
      const current = await rooms.get(RoomStateReader).currentEvent(roomId, 'm.room.topic');
      await eventually(() => looks.length === 1);
      await setTopic('two');
      await rooms.get(JoinService).join(isRemote ? requesterOf('carol') : bob, roomId);
      await setTopic('three');
      release();
      await looking;
      const one = current?.event.content['topic'];
      const bobs = isRemote ? 'join' : undefined;
      expect(looks).toEqual([
        [one, bobs, state.length],
        [one, bobs, state.length],
      ]);
    }
  });

  it.each([
    ['a message', { type: 'm.room.message' }],
    ['state', { type: 'x.state', stateKey: 'same' }],
    ['a redaction', { type: 'm.room.redaction' }],
  ] as const)('may think about %s that is sent many times at once', async (_, draft) => {
    for (const body of ['slow', 'slow draft']) {
      const roomId = await create();
      let release = (): void => {};
      const redacts = draft.type === 'm.room.redaction' ? (await say(roomId, 'to be redacted')).eventId : undefined;
      hold = new Promise((resolve) => (release = resolve));
      asked.length = 0;
      const sending = Array.from({ length: 60 }, () =>
        rooms.get(EventCreation).send(alice, { roomId, ...draft, content: { body }, ...(redacts && { redacts }) }),
      );
      // All of them are thought about before the first is stored.
      if (body === 'slow') await eventually(() => asked.length >= 60);
      release();
      const outcomes = await Promise.allSettled(sending);
      expect(outcomes.filter((outcome) => outcome.status === 'rejected')).toEqual([]);
      const ids = outcomes.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value.eventId : ''));
      expect(new Set(ids).size).toBe(60);
      const stored = await test.database.query(
        `SELECT event_id FROM events WHERE room_id = ? AND type = ? AND rejection_reason IS NULL`,
        [roomId, draft.type],
      );
      expect(stored).toHaveLength(60);
    }
  });

  it('fail the batch with a hook that must not be missed, and nothing else', async () => {
    const roomId = await create();
    let fails = false;
    const seen: string[] = [];
    rooms.get(RoomHooks).subscribe<number>({
      prepare: async (batch) => batch.events.length,
      inTransaction: async (tx: Tx, batch, prepared) => {
        expect(prepared).toBe(batch.events.length);
        if (fails && batch.events.some(({ event }) => event.content['body'] === 'poison')) throw new Error('hook');
        await tx.get('SELECT 1 AS one');
      },
      afterCommit: (batch) => {
        seen.push(...batch.events.map(({ event }) => String(event.content['body'])));
        if (batch.events.some(({ streamOrdering }) => streamOrdering > rooms.notifier.position('events'))) {
          throw new Error('told before it can be read');
        }
      },
    });
    fails = true;
    const results = await Promise.allSettled(['one', 'poison', 'two'].map((body) => say(roomId, body)));
    expect(results.map((result) => result.status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(seen.sort()).toEqual(['one', 'two']);
    fails = false;
    const after = await say(roomId, 'poison');
    expect(await bodyOf(roomId, after.eventId)).toBe('poison');
  });
});
