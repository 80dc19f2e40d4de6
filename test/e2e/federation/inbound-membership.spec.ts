import { type RoomEvent, signEvent, SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { stateKeyOf } from '@rookery/state-res';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, databases, ok, outcome as said, say, setState, type WireEvent } from '../rooms/rooms-client.js';
import { ElsewhereRoom } from './elsewhere-room.js';
import { type Answer, FederationWorld, type PlayedServer } from './federation-world.js';
import { sendTransaction, Visit } from './visiting-server.js';

const fed = '/_matrix/federation';
const part = encodeURIComponent;
const bob = '@bob:visitor.test';
const wide = { per_second: 1000, burst_count: 1000 };

describe.each(databases)('members from other servers (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let alice: TestUser;
  let visitor: PlayedServer;
  let other: PlayedServer;
  beforeAll(async () => {
    world = await FederationWorld.create();
    home = await world.homeserver('home.test', {
      database,
      settings: {
        rc_federation: { sleep_limit: 1_000, concurrent: 50 },
        rc_invites: { per_room: wide, per_user: wide, per_issuer: wide },
        room_prejoin_state: { additional_event_types: ['m.space.parent', ['org.example.tag', 'a']] },
      },
    });
    visitor = await world.played('visitor.test');
    other = await world.played('other.test');
    alice = await home.registerUser('alice');
  });
  afterAll(() => world.stop());

  const timeline = async (roomId: string): Promise<WireEvent[]> =>
    (await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=100`)).chunk;
  const membershipOf = async (roomId: string, userId: string): Promise<unknown> =>
    (await alice.request('GET', `/rooms/${roomId}/state/m.room.member/${userId}`)).body['membership'];
  const seen = (roomId: string, eventId: string): Promise<WireEvent> =>
    eventually(async () => (await timeline(roomId)).find((event) => event.event_id === eventId));
  const publicRoom = (version: string, more: object = {}): Promise<string> =>
    createRoom(alice, { preset: 'public_chat', room_version: version, ...more });

  it.each(['1', '2', '3', '5', '6', '10', '11', '12'])('join, talk and leave (version %s)', async (version) => {
    const roomId = await publicRoom(version, { name: 'The room' });
    const visit = await Visit.join(visitor, home, roomId, bob);
    expect(await membershipOf(roomId, bob)).toBe('join');
    expect(visit.state.size).toBeGreaterThanOrEqual(7);
    const message = visit.message(bob, 'hello from afar');
    expect(await visit.send(message)).toEqual({ [message.eventId]: {} });
    expect((await seen(roomId, message.eventId)).content['body']).toBe('hello from afar');
    await visit.follow(await say(alice, roomId, 'hello to afar'));
    const topic = visit.make({ type: 'm.room.topic', stateKey: '', sender: bob, content: { topic: 'mine' } });
    const answer = visit.message(bob, 'and again');
    await visit.send(topic, answer);
    await seen(roomId, answer.eventId);
    // Who has no power sets no topic.
    expect((await timeline(roomId)).map((event) => event.event_id)).not.toContain(topic.eventId);
    const proposal = await Visit.make(visitor, home, 'leave', roomId, bob);
    const leave = Visit.complete(visitor, proposal.body);
    expect(await Visit.send(visitor, home, 'leave', leave)).toMatchObject({ status: 200, body: {} });
    expect(await membershipOf(roomId, bob)).toBe('leave');
    const late = visit.make({ type: 'm.room.message', sender: bob, content: { body: 'late' }, prev: [leave] });
    await visit.send(late);
    await seen(roomId, await say(alice, roomId, 'last'));
    expect((await timeline(roomId)).map((event) => event.content['body'])).not.toContain('late');
  });

  it('join again and get the same answer', async () => {
    const roomId = await publicRoom('12');
    const event = Visit.complete(visitor, (await Visit.make(visitor, home, 'join', roomId, bob)).body);
    const first = await Visit.send(visitor, home, 'join', event);
    const second = await Visit.send(visitor, home, 'join', event);
    expect([first.status, second.status]).toEqual([200, 200]);
    expect(second.body['event']).toEqual(first.body['event']);
    expect(new Set((second.body['state'] as JsonObject[]).map((pdu) => JSON.stringify(pdu)))).toEqual(
      new Set((first.body['state'] as JsonObject[]).map((pdu) => JSON.stringify(pdu))),
    );
    // The first version of the endpoint, which wraps its answer.
    const uri = `${fed}/v1/send_join/${part(roomId)}/${part(event.eventId)}`;
    const old = await visitor.request(home, 'PUT', uri, event.pdu);
    expect(old.body).toMatchObject([200, { state: expect.any(Array) as unknown }]);
  });

  it('can do without the other members', async () => {
    const roomId = await publicRoom('10');
    for (let n = 0; n < 8; n++) {
      const user = await home.registerUser(`m${n}`);
      await ok(user, 'POST', `/rooms/${roomId}/join`, {});
    }
    const event = Visit.complete(visitor, (await Visit.make(visitor, home, 'join', roomId, bob)).body);
    const { body } = await Visit.send(visitor, home, 'join', event, '?omit_members=true');
    expect(body['members_omitted']).toBe(true);
    expect(body['servers_in_room']).toEqual(['home.test']);
    const membersIn = (list: unknown): unknown[] =>
      (list as JsonObject[]).filter((pdu) => pdu['type'] === 'm.room.member').map((pdu) => pdu['state_key']);
    // A room without a name is called by five of its members.
    expect(membersIn(body['state'])).toHaveLength(5);
    const named = await publicRoom('10', { name: 'named' });
    const again = Visit.complete(visitor, (await Visit.make(visitor, home, 'join', named, bob)).body);
    const lean = (await Visit.send(visitor, home, 'join', again, '?omit_members=true')).body;
    expect(membersIn(lean['state'])).toEqual([]);
    expect(membersIn(lean['auth_chain'])).toEqual([alice.userId]);
  });

  it('are refused what the room does not allow', async () => {
    const make = async (roomId: string, userId = bob, kind = 'join', versions?: string[]): Promise<string> =>
      said(await Visit.make(visitor, home, kind, roomId, userId, versions));
    const closed = await createRoom(alice, { room_version: '12' });
    const open = await publicRoom('10');
    expect(await make(closed)).toBe('403 M_FORBIDDEN');
    expect(await make(open, '@eve:elsewhere.test')).toBe('403 M_FORBIDDEN');
    expect(await make(open, 'bob')).toBe('400 M_INVALID_PARAM');
    expect(await make('!nowhere:home.test')).toBe('404 M_NOT_FOUND');
    expect(await make(open, bob, 'leave')).toBe('403 M_FORBIDDEN');
    expect(await make(open, bob, 'knock')).toBe('403 M_FORBIDDEN');
    const proposal = await Visit.make(visitor, home, 'join', open, bob);
    expect(proposal.body['event']).toMatchObject({ origin: 'home.test', sender: bob });
    const wrong = await Visit.make(visitor, home, 'join', open, bob, ['1', '12']);
    expect([said(wrong), wrong.body['room_version']]).toEqual(['400 M_INCOMPATIBLE_ROOM_VERSION', '10']);
    const old = await visitor.request(home, 'GET', `${fed}/v1/make_join/${part(open)}/${part(bob)}`);
    expect(said(old)).toBe('400 M_INCOMPATIBLE_ROOM_VERSION');
    const federated = await publicRoom('12', { creation_content: { 'm.federate': false } });
    expect(await make(federated)).toBe('403 M_FORBIDDEN');
    await ok(alice, 'POST', `/rooms/${open}/ban`, { user_id: bob });
    expect(await make(open)).toBe('403 M_FORBIDDEN');
    const walled = await publicRoom('12', {
      initial_state: [{ type: 'm.room.server_acl', content: { allow: ['*'], deny: ['VISITOR.test'] } }],
    });
    expect(await make(walled)).toBe('403 M_FORBIDDEN');
    const left = await publicRoom('12');
    await ok(alice, 'POST', `/rooms/${left}/leave`, {});
    expect(await make(left)).toBe('404 M_NOT_FOUND');
  });

  it('are refused whose events are not what they should be', async () => {
    const roomId = await publicRoom('10');
    const { body } = await Visit.make(visitor, home, 'join', roomId, bob);
    const event = Visit.complete(visitor, body);
    const send = async (pdu: JsonObject, id = event.eventId): Promise<string> =>
      said(await visitor.request(home, 'PUT', `${fed}/v2/send_join/${part(roomId)}/${part(id)}`, pdu));
    const remade = async (change: JsonObject): Promise<string> => {
      const other = Visit.complete(visitor, body, change);
      return send(other.pdu, other.eventId);
    };
    expect(await send(event.pdu, '$other')).toBe('400 M_INVALID_PARAM');
    expect(await send({ ...event.pdu, signatures: {} })).toBe('400 M_INVALID_PARAM');
    const stranger = SigningKey.fromSeed('played', new Uint8Array(32).fill(1));
    const forged = signEvent({ ...event, pdu: { ...event.pdu, signatures: {} } }, visitor.name, stranger);
    expect(await send(forged.pdu)).toBe('400 M_INVALID_PARAM');
    const content = { membership: 'join', displayname: 'changed on the way' };
    expect(await send({ ...event.pdu, content })).toBe('400 M_INVALID_PARAM');
    expect(await remade({ content: { membership: 'leave' } })).toBe('400 M_INVALID_PARAM');
    expect(await remade({ type: 'm.room.message' })).toBe('400 M_INVALID_PARAM');
    expect(await remade({ state_key: '@carol:visitor.test' })).toBe('400 M_INVALID_PARAM');
    const eve = '@eve:elsewhere.test';
    expect(await remade({ sender: eve, state_key: eve })).toBe('400 M_INVALID_PARAM');
    expect(await remade({ prev_events: ['$unknown'] })).toBe('400 M_INVALID_PARAM');
    expect(await remade({ auth_events: [] })).toBe('403 M_FORBIDDEN');
    expect(await remade({ room_id: '!other:home.test' })).toBe('400 M_BAD_JSON');
    expect(await send({ ...event.pdu, content: { membership: 'join', x: 'x'.repeat(70_000) } })).toBe(
      '413 M_TOO_LARGE',
    );
    expect(await send({})).toBe('400 M_BAD_JSON');
    // Good as it is, but in somebody else's hands.
    const theirs = (await Visit.make(other, home, 'join', roomId, '@eve:other.test')).body;
    const ofOther = Visit.complete(other, theirs);
    expect(await send(ofOther.pdu, ofOther.eventId)).toBe('400 M_INVALID_PARAM');
    // A template that has grown old: bob was banned meanwhile.
    await ok(alice, 'POST', `/rooms/${roomId}/ban`, { user_id: bob });
    expect(await send(event.pdu)).toBe('403 M_FORBIDDEN');
    expect(await membershipOf(roomId, bob)).toBe('ban');
  });

  it.each(['8', '10', '12'])('are let in by members of other rooms (version %s)', async (version) => {
    const lobby = await publicRoom(version);
    const restricted = (allow: readonly string[]): Promise<string> =>
      createRoom(alice, {
        room_version: version,
        initial_state: [
          {
            type: 'm.room.join_rules',
            content: {
              join_rule: 'restricted',
              allow: allow.map((room_id) => ({ type: 'm.room_membership', room_id })),
            },
          },
        ],
      });
    const roomId = await restricted([lobby]);
    const make = (room: string): Promise<Answer> => Visit.make(visitor, home, 'join', room, bob);
    expect(said(await make(roomId))).toBe('403 M_FORBIDDEN');
    expect(said(await make(await restricted(['!unknown:elsewhere.test'])))).toBe('400 M_UNABLE_TO_AUTHORISE_JOIN');
    await Visit.join(visitor, home, lobby, bob);
    const proposal = await make(roomId);
    expect((proposal.body['event'] as { content: unknown }).content).toEqual({
      membership: 'join',
      join_authorised_via_users_server: alice.userId,
    });
    const event = Visit.complete(visitor, proposal.body);
    const answer = await Visit.send(visitor, home, 'join', event);
    expect(said(answer)).toBe('200');
    const { signatures } = answer.body['event'] as { signatures: object };
    expect(Object.keys(signatures).sort()).toEqual(['home.test', 'visitor.test']);
    // There is no room for the signature of this server in what only just is an event.
    const { content } = proposal.body['event'] as { content: JsonObject };
    let large = event;
    for (let size = 64_000; size < 65_536; size += 8) {
      try {
        large = Visit.complete(visitor, proposal.body, { content: { ...content, reason: 'x'.repeat(size) } });
      } catch {
        break;
      }
    }
    expect(said(await Visit.send(visitor, home, 'join', large))).toBe('413 M_TOO_LARGE');
    // Who has left the other room meanwhile is not let in.
    const late = await restricted([lobby]);
    const kept = Visit.complete(visitor, (await make(late)).body);
    const back = Visit.complete(visitor, (await Visit.make(visitor, home, 'leave', lobby, bob)).body);
    expect(said(await Visit.send(visitor, home, 'leave', back))).toBe('200');
    expect(said(await Visit.send(visitor, home, 'join', kept))).toBe('403 M_FORBIDDEN');
    await Visit.join(visitor, home, lobby, bob);
    // Nobody of this server may let people in any more.
    const levels = await ok(alice, 'GET', `/rooms/${roomId}/state/m.room.power_levels/`);
    if (version === '12') return;
    const other = await restricted([lobby]);
    await setState(alice, other, 'm.room.power_levels', { ...levels, invite: 100, users: { [alice.userId]: 99 } });
    expect(said(await make(other))).toBe('400 M_UNABLE_TO_GRANT_JOIN');
  });

  it.each(['7', '10', '12'])('knock, and are let in (version %s)', async (version) => {
    const roomId = await createRoom(alice, {
      name: 'Behind the door',
      room_version: version,
      initial_state: [{ type: 'm.room.join_rules', content: { join_rule: 'knock' } }],
    });
    const proposal = await Visit.make(visitor, home, 'knock', roomId, bob);
    const event = Visit.complete(visitor, proposal.body);
    const answer = await Visit.send(visitor, home, 'knock', event);
    const shown = answer.body['knock_room_state'] as JsonObject[];
    expect(shown.map((each) => each['type']).sort()).toEqual(['m.room.create', 'm.room.join_rules', 'm.room.name']);
    expect(shown.every((each) => 'signatures' in each)).toBe(true);
    expect(await membershipOf(roomId, bob)).toBe('knock');
    const back = Visit.complete(visitor, (await Visit.make(visitor, home, 'leave', roomId, bob)).body);
    expect(said(await Visit.send(visitor, home, 'leave', back))).toBe('200');
    expect(await membershipOf(roomId, bob)).toBe('leave');
  });

  it('sees state of types that the settings name, whatever its key, before it comes in', async () => {
    const state = [
      { type: 'm.room.join_rules', content: { join_rule: 'knock' } },
      ...['!one:home.test', '!two:home.test'].map((key) => ({ type: 'm.space.parent', state_key: key, content: {} })),
      ...['a', 'b'].map((key) => ({ type: 'org.example.tag', state_key: key, content: {} })),
    ];
    const early = await home.registerUser('early');
    const roomId = await publicRoom('10', {
      ...{ initial_state: state, invite: [early.userId] },
      power_level_content_override: { invite: 0 },
    });
    const added = (shown: readonly JsonObject[]): string[] =>
      shown
        .filter(({ type }) => type === 'm.space.parent' || type === 'org.example.tag')
        .map((event) => String(event['state_key']))
        .sort();
    const invitedTo = async (user: TestUser): Promise<JsonObject[]> => {
      type Invites = { rooms: { invite: Record<string, { invite_state: { events: JsonObject[] } }> } };
      return (await ok<Invites>(user, 'GET', '/sync')).rooms.invite[roomId]!.invite_state.events;
    };
    const expected = ['!one:home.test', '!two:home.test', 'a'];
    const knock = Visit.complete(visitor, (await Visit.make(visitor, home, 'knock', roomId, bob)).body);
    const answer = await Visit.send(visitor, home, 'knock', knock);
    expect(added(answer.body['knock_room_state'] as JsonObject[])).toEqual(expected);
    expect(added(await invitedTo(early))).toEqual(expected);
    const late = await home.registerUser('late');
    await ok(alice, 'POST', `/rooms/${roomId}/invite`, { user_id: late.userId });
    expect(added(await invitedTo(late))).toEqual(expected);
    // An invite of another server to a room that this one knows better.
    await setState(alice, roomId, 'm.room.join_rules', { join_rule: 'public' });
    const visit = await Visit.join(visitor, home, roomId, bob);
    const friend = await home.registerUser('friend-of-spaces');
    const content = { membership: 'invite' };
    const event = visit.make({ type: 'm.room.member', sender: bob, stateKey: friend.userId, content });
    const uri = `${fed}/v2/invite/${part(roomId)}/${part(event.eventId)}`;
    const sent = { room_version: '10', event: event.pdu, invite_room_state: [] };
    expect(said(await visitor.request(home, 'PUT', uri, sent))).toBe('200');
    expect(added(await invitedTo(friend))).toEqual(expected);
  });

  describe('invites of local users', () => {
    interface Change {
      readonly target?: string;
      readonly content?: JsonObject;
      readonly path?: string;
      readonly sender?: string;
      readonly state?: (room: ElsewhereRoom) => unknown;
    }
    interface Invited {
      readonly answer: Answer;
      readonly room: ElsewhereRoom;
      readonly event: RoomEvent;
    }
    const invite = async (version: string, change: Change = {}, as: 'v1' | 'v2' = 'v2'): Promise<Invited> => {
      const room = new ElsewhereRoom(visitor, version);
      const event = room.make({
        type: 'm.room.member',
        sender: change.sender ?? room.creator,
        stateKey: change.target ?? alice.userId,
        content: change.content ?? { membership: 'invite' },
      });
      const shown = ['m.room.create', 'm.room.name'].map((type) => room.state.get(stateKeyOf(type, ''))?.pdu);
      const state = change.state?.(room) ?? shown;
      const uri = `${fed}/${as}/invite/${part(change.path ?? room.roomId)}/${part(event.eventId)}`;
      const content =
        as === 'v2'
          ? { room_version: version, event: event.pdu, invite_room_state: state }
          : { ...event.pdu, unsigned: { invite_room_state: state } };
      return { answer: await visitor.request(home, 'PUT', uri, content as JsonObject), room, event };
    };
    const invitesOf = async (): Promise<Record<string, { invite_state: { events: WireEvent[] } }>> =>
      (
        await ok<{ rooms?: { invite?: Record<string, { invite_state: { events: WireEvent[] } }> } }>(
          alice,
          'GET',
          '/sync',
        )
      ).rooms?.invite ?? {};

    it.each(['1', '2', '6', '10', '12'])('arrive signed, and can be taken back (version %s)', async (version) => {
      const { answer, room, event } = await invite(version);
      const { roomId } = room;
      expect(said(answer)).toBe('200');
      const { signatures } = answer.body['event'] as { signatures: object };
      expect(Object.keys(signatures).sort()).toEqual(['home.test', 'visitor.test']);
      const shown = (await invitesOf())[roomId]?.invite_state.events.map((each) => each.type) ?? [];
      expect(shown.sort()).toEqual(['m.room.create', 'm.room.member', 'm.room.name']);
      const leave = { type: 'm.room.member', stateKey: alice.userId, content: { membership: 'leave' } };
      // Somebody who has nothing to do with it.
      const other = new ElsewhereRoom(visitor, version).make({ ...leave, auth: [event.eventId] });
      // Somebody else of the inviter's server: nobody here knows whether they may.
      const sender = '@else:visitor.test';
      const kick = room.make({ ...leave, sender, auth: [event.eventId] });
      const ban = room.make({ ...leave, sender, content: { membership: 'ban' }, auth: [event.eventId] });
      await sendTransaction(visitor, home, [other.pdu, room.make(leave).pdu, kick.pdu, ban.pdu]);
      expect((await invitesOf())[roomId]).toBeDefined();
      const withdrawn = room.make({ ...leave, auth: [event.eventId] });
      await sendTransaction(visitor, home, [withdrawn.pdu]);
      expect((await invitesOf())[roomId]).toBeUndefined();
    });

    it('arrive by the first version of the endpoint', async () => {
      const { answer, room } = await invite('1', {}, 'v1');
      expect(answer.body).toMatchObject([200, { event: { room_id: room.roomId } }]);
      expect((await invitesOf())[room.roomId]).toBeDefined();
    });

    it('are refused when they are none', async () => {
      const outcomeOf = async (...args: Parameters<typeof invite>): Promise<string> =>
        said((await invite(...args)).answer);
      expect(await outcomeOf('10', { target: '@nobody:elsewhere.test' })).toBe('400 M_INVALID_PARAM');
      expect(await outcomeOf('10', { content: { membership: 'join' } })).toBe('400 M_INVALID_PARAM');
      expect(await outcomeOf('10', { sender: '@eve:elsewhere.test' })).toBe('400 M_INVALID_PARAM');
      const claimed = { membership: 'invite', third_party_invite: { display_name: 'e', signed: {} } };
      expect(await outcomeOf('10', { sender: '@eve:elsewhere.test', content: claimed })).toBe('400 M_INVALID_PARAM');
      expect(await outcomeOf('10', { path: '!other:visitor.test' })).toBe('400 M_BAD_JSON');
      expect(await outcomeOf('12', { state: () => [] })).toBe('400 M_INVALID_PARAM');
      const elsewhere = new ElsewhereRoom(visitor, '12');
      const theirs = ['m.room.create', 'm.room.name'].map((type) => elsewhere.state.get(stateKeyOf(type, ''))!);
      expect(await outcomeOf('12', { state: () => theirs.map(({ pdu }) => pdu) })).toBe('400 M_INVALID_PARAM');
      const named = (room: ElsewhereRoom, change: JsonObject): unknown[] => {
        const [create, name] = ['m.room.create', 'm.room.name'].map(
          (type) => room.state.get(stateKeyOf(type, ''))!.pdu,
        );
        return [create, { ...name, ...change }];
      };
      const stripped = ({ state }: ElsewhereRoom): unknown => {
        const { type, sender, content } = state.get(stateKeyOf('m.room.create', ''))!;
        return [{ type, sender, content, state_key: '' }];
      };
      expect(await outcomeOf('12', { state: stripped })).toBe('400 M_INVALID_PARAM');
      expect(await outcomeOf('12', { state: (room) => named(room, { signatures: {} }) })).toBe('400 M_INVALID_PARAM');
      expect(await outcomeOf('12', { state: (room) => named(room, { depth: 99 }) })).toBe('400 M_INVALID_PARAM');
      expect(await outcomeOf('12', { state: (room) => named(room, {}) })).toBe('200');
      const faked = await invite('12', { state: (room) => named(room, { content: { name: 'not its name' } }) });
      const seenAs = (await invitesOf())[faked.room.roomId]?.invite_state.events ?? [];
      expect(seenAs.find(({ type }) => type === 'm.room.name')?.content).toEqual({});
      // Without its excuse, which goes with the wrong hash, an invite needs a signature of its sender's server.
      const excused = (room: ElsewhereRoom): unknown[] => {
        const content = { membership: 'invite', third_party_invite: 'x' };
        const { pdu } = room.make({
          type: 'm.room.member',
          sender: '@eve:other.test',
          stateKey: alice.userId,
          content,
        });
        return [...named(room, {}), { ...pdu, hashes: { sha256: 'A'.repeat(43) } }];
      };
      expect(await outcomeOf('12', { state: excused })).toBe('400 M_INVALID_PARAM');
      expect(await outcomeOf('10', { state: () => ({}) })).toBe('400 M_INVALID_PARAM');
      const uri = `${fed}/v2/invite/!a%3Avisitor.test/%24b`;
      expect(said(await visitor.request(home, 'PUT', uri, { room_version: '99', event: {} }))).toBe(
        '400 M_INCOMPATIBLE_ROOM_VERSION',
      );
      expect(said(await visitor.request(home, 'PUT', uri, { room_version: '10' }))).toMatch(/^400 /);
    });

    it('are refused as their targets wish', async () => {
      const hermit = await home.registerUser('hermit');
      const path = `/user/${hermit.userId}/account_data/m.invite_permission_config`;
      await ok(hermit, 'PUT', path, { default_action: 'block' });
      expect(said((await invite('10', { target: hermit.userId })).answer)).toBe('403 M_INVITE_BLOCKED');
      // Then nobody is asked for keys because of what the room shows.
      const third = await world.played(`third-${database}.test`);
      const state = (room: ElsewhereRoom): unknown[] => {
        const sender = `@x:${third.name}`;
        const topic = room.make({ type: 'm.room.topic', stateKey: '', sender, content: { topic: 'x' } });
        const create = room.state.get(stateKeyOf('m.room.create', ''))!;
        return [create.pdu, signEvent(topic, third.name, third.key).pdu];
      };
      expect(said((await invite('12', { target: hermit.userId, state })).answer)).toBe('403 M_INVITE_BLOCKED');
      expect(third.asked).toEqual([]);
      expect(said((await invite('12', { state })).answer)).toBe('200');
      expect(third.asked.map(({ url }) => url)).toEqual(['/_matrix/key/v2/server']);
      // Whoever is ignored is not told.
      await ok(alice, 'PUT', `/user/${alice.userId}/account_data/m.ignored_user_list`, {
        ignored_users: { '@carol:visitor.test': {} },
      });
      const { answer, room } = await invite('10');
      expect(said(answer)).toBe('200');
      expect((await invitesOf())[room.roomId]).toBeUndefined();
      await ok(alice, 'PUT', `/user/${alice.userId}/account_data/m.ignored_user_list`, { ignored_users: {} });
    });

    it('to rooms that this server is in do not change who is in them', async () => {
      const roomId = await publicRoom('10');
      const visit = await Visit.join(visitor, home, roomId, bob);
      const event = visit.make({
        type: 'm.room.member',
        sender: bob,
        stateKey: alice.userId,
        content: { membership: 'invite' },
      });
      const content = { room_version: '10', event: event.pdu, invite_room_state: [] };
      const uri = `${fed}/v2/invite/${part(roomId)}/${part(event.eventId)}`;
      expect(said(await visitor.request(home, 'PUT', uri, content))).toBe('403 M_FORBIDDEN');
      expect(await membershipOf(roomId, alice.userId)).toBe('join');
    });

    it('to rooms that this server is in come from people who may invite, whatever leads to it', async () => {
      const roomId = await publicRoom('10', { power_level_content_override: { invite: 0 } });
      const visit = await Visit.join(visitor, home, roomId, bob);
      const friend = await home.registerUser('friend-of-gaps');
      const before = visit.message(bob, 'on its way');
      const inviteBy = (sender: string): Promise<Answer> => {
        const event = visit.make({
          ...{ type: 'm.room.member', sender, stateKey: friend.userId, content: { membership: 'invite' } },
          prev: [before],
        });
        const content = { room_version: '10', event: event.pdu, invite_room_state: [] };
        const uri = `${fed}/v2/invite/${part(roomId)}/${part(event.eventId)}`;
        return visitor.request(home, 'PUT', uri, content);
      };
      // Nobody tells what leads to it.
      expect(said(await inviteBy('@stranger:visitor.test'))).toBe('403 M_FORBIDDEN');
      expect(said(await inviteBy(bob))).toBe('403 M_FORBIDDEN');
      visitor.answer = ({ url }, response) => {
        if (url.includes('get_missing_events')) response.end(JSON.stringify({ events: [before.pdu] }));
        else response.writeHead(404).end('{"errcode":"M_NOT_FOUND","error":"No"}');
      };
      expect(said(await inviteBy('@stranger:visitor.test'))).toBe('403 M_FORBIDDEN');
      expect(said(await inviteBy(bob))).toBe('200');
      await ok(friend, 'POST', `/rooms/${roomId}/join`, {});
    });

    it('to rooms that this server is in show the room as it is', async () => {
      const roomId = await publicRoom('10', { name: 'Well known', power_level_content_override: { invite: 0 } });
      const visit = await Visit.join(visitor, home, roomId, bob);
      const friend = await home.registerUser('friend');
      const event = visit.make({
        type: 'm.room.member',
        sender: bob,
        stateKey: friend.userId,
        content: { membership: 'invite' },
      });
      const lie = { type: 'm.room.name', state_key: '', sender: bob, content: { name: 'Free money' } };
      const content = { room_version: '10', event: event.pdu, invite_room_state: [lie] };
      const uri = `${fed}/v2/invite/${part(roomId)}/${part(event.eventId)}`;
      // Read by other rules it would be another event.
      const mistaken = { ...content, room_version: '11' };
      expect(said(await visitor.request(home, 'PUT', uri, mistaken))).toBe('400 M_INVALID_PARAM');
      expect(said(await visitor.request(home, 'PUT', uri, content))).toBe('200');
      const { rooms } = await ok<{ rooms: { invite: Record<string, { invite_state: { events: WireEvent[] } }> } }>(
        friend,
        'GET',
        '/sync',
      );
      const shown = rooms.invite[roomId]?.invite_state.events ?? [];
      expect(shown.find((each) => each.type === 'm.room.name')?.content).toEqual({ name: 'Well known' });
      await ok(friend, 'POST', `/rooms/${roomId}/join`, {});
    });
  });
});
