import { signJson, SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, databases, ok, say, setState, type WireEvent } from '../rooms/rooms-client.js';
import { FederationWorld } from './federation-world.js';

interface Sync {
  readonly next_batch: string;
  readonly rooms?: {
    readonly join?: Record<string, { readonly timeline: { readonly events: WireEvent[] } }>;
    readonly invite?: Record<string, { readonly invite_state: { readonly events: WireEvent[] } }>;
    readonly knock?: Record<string, { readonly knock_state: { readonly events: WireEvent[] } }>;
    readonly leave?: Record<
      string,
      { readonly state?: { readonly events: WireEvent[] }; readonly timeline: { readonly events: WireEvent[] } }
    >;
  };
}

describe.each(databases)('two servers (%s)', (database) => {
  let world: FederationWorld;
  let one: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let carol: TestUser;

  beforeAll(async () => {
    world = await FederationWorld.create();
    const experimental_features = { msc3720_enabled: true };
    const publishing = { room_list_publication_rules: [{ action: 'allow' }], allow_public_rooms_over_federation: true };
    one = await world.homeserver('one.test', { database, settings: { ...publishing, experimental_features } });
    const two = await world.homeserver('two.test', { database, settings: { experimental_features } });
    alice = await one.registerUser('alice');
    bob = await two.registerUser('bob');
    carol = await two.registerUser('carol');
  });
  afterAll(() => world?.stop());

  /** Asks until an answer is as it should be. */
  const until = async <T>(ask: () => Promise<T>, good: (answer: T) => boolean): Promise<T> => {
    const found = await eventually(async () => {
      const answer = await ask();
      return good(answer) && { answer };
    });
    return found.answer;
  };
  const join = (user: TestUser, roomId: string, via: string) =>
    user.request<JsonObject>('POST', `/join/${encodeURIComponent(roomId)}?via=${via}`, {});
  const bodies = async (user: TestUser, roomId: string): Promise<unknown[]> => {
    const { chunk } = await ok<{ chunk: WireEvent[] }>(user, 'GET', `/rooms/${roomId}/messages?dir=b&limit=100`);
    return chunk.flatMap((event) => (event.type === 'm.room.message' ? [event.content['body']] : []));
  };
  const hears = (user: TestUser, roomId: string, body: string) =>
    until(
      () => bodies(user, roomId),
      (all) => all.includes(body),
    );
  const membershipOf = async (user: TestUser, roomId: string, target: TestUser): Promise<unknown> =>
    (await user.request<JsonObject>('GET', `/rooms/${roomId}/state/m.room.member/${target.userId}`)).body['membership'];
  const sees = (user: TestUser, roomId: string, target: TestUser, membership: string) =>
    until(
      () => membershipOf(user, roomId, target),
      (now) => now === membership,
    );
  const sync = (user: TestUser, since?: string) =>
    ok<Sync>(user, 'GET', since === undefined ? '/sync' : `/sync?since=${since}`);
  /** Expects that a user who was asked into a room is told how that ended, and nothing else of the room. */
  const expectEnding = async (user: TestUser, roomId: string, since: string, ending: object): Promise<void> => {
    const { rooms } = await until(
      () => sync(user, since),
      (answer) => roomId in (answer.rooms?.leave ?? {}),
    );
    const { state, timeline } = rooms!.leave![roomId]!;
    expect(state?.events ?? []).toEqual([]);
    expect(timeline.events).toMatchObject([ending]);
  };
  const sentAway = (reason: string): object => ({
    ...{ type: 'm.room.member', state_key: bob.userId, sender: alice.userId },
    content: { membership: 'leave', reason },
  });

  it.each(['1', '6', '10', '11', '12'])('joins, talks both ways and leaves (version %s)', async (version) => {
    const roomId = await createRoom(alice, { preset: 'public_chat', room_version: version, name: 'Both' });
    await say(alice, roomId, 'before');
    expect((await join(bob, roomId, 'one.test')).status).toBe(200);
    await sees(alice, roomId, bob, 'join');
    expect(await bodies(bob, roomId)).toEqual(['before']);
    await say(alice, roomId, 'hello bob');
    await hears(bob, roomId, 'hello bob');
    await say(bob, roomId, 'hello alice');
    await hears(alice, roomId, 'hello alice');
    await setState(alice, roomId, 'm.room.topic', { topic: 'two servers' });
    await until(
      () => bob.request<JsonObject>('GET', `/rooms/${roomId}/state/m.room.topic`),
      ({ body }) => body['topic'] === 'two servers',
    );
    await ok(bob, 'POST', `/rooms/${roomId}/leave`, {});
    await sees(alice, roomId, bob, 'leave');
    expect((await join(bob, roomId, 'one.test')).status).toBe(200);
    await sees(alice, roomId, bob, 'join');
    await ok(alice, 'POST', `/rooms/${roomId}/kick`, { user_id: bob.userId });
    await until(
      () => bob.request<{ joined_rooms: string[] }>('GET', '/joined_rooms'),
      ({ body }) => !body.joined_rooms.includes(roomId),
    );
  });

  it('invites; the invite is accepted, rejected, withdrawn', async () => {
    const invitesOf = async () => (await sync(bob)).rooms?.invite ?? {};
    const invited = async (): Promise<string> => {
      const roomId = await createRoom(alice, { preset: 'private_chat', name: 'Private', invite: [bob.userId] });
      const { [roomId]: shown } = await until(invitesOf, (invites) => roomId in invites);
      const state = shown?.invite_state.events ?? [];
      expect(state.find((event) => event.type === 'm.room.name')?.content['name']).toBe('Private');
      return roomId;
    };
    const accepted = await invited();
    await ok(bob, 'POST', `/rooms/${accepted}/join`, {});
    await sees(alice, accepted, bob, 'join');
    await say(bob, accepted, 'thanks');
    await hears(alice, accepted, 'thanks');
    const rejected = await invited();
    await ok(bob, 'POST', `/rooms/${rejected}/leave`, { reason: 'no time' });
    await sees(alice, rejected, bob, 'leave');
    expect(Object.keys(await invitesOf())).not.toContain(rejected);
    const withdrawn = await invited();
    const { next_batch: since } = await sync(bob);
    await setState(alice, withdrawn, 'm.room.topic', { topic: 'not for bob' });
    await ok(alice, 'POST', `/rooms/${withdrawn}/kick`, { user_id: bob.userId, reason: 'a mistake' });
    await expectEnding(bob, withdrawn, since, sentAway('a mistake'));
    expect(Object.keys(await invitesOf())).not.toContain(withdrawn);
  });

  it('lets in who shows with the join that an invite to an address is theirs', async () => {
    const idKey = SigningKey.fromSeed('id', new Uint8Array(32).fill(77));
    const invite = {
      ...{ display_name: 'b...', public_key: idKey.publicKey },
      public_keys: [{ public_key: idKey.publicKey }],
    };
    const joinWith = (roomId: string, key: SigningKey) => {
      const said = { mxid: bob.userId, token: 'token', sender: alice.userId };
      const third_party_signed = signJson(said, 'id.test', key);
      return bob.request<JsonObject>('POST', `/join/${encodeURIComponent(roomId)}?via=one.test`, {
        third_party_signed,
      });
    };
    for (const others of [[], [carol.userId]]) {
      const roomId = await createRoom(alice, { preset: 'private_chat', invite: others });
      // In a room that his server knows it is no different.
      if (others.length > 0) expect((await join(carol, roomId, 'one.test')).status).toBe(200);
      await ok(alice, 'PUT', `/rooms/${roomId}/state/m.room.third_party_invite/token`, invite);
      const forged = await joinWith(roomId, SigningKey.fromSeed('id', new Uint8Array(32).fill(78)));
      expect([forged.status, forged.body['errcode']]).toEqual([403, 'M_FORBIDDEN']);
      expect((await joinWith(roomId, idKey)).status).toBe(200);
      await sees(alice, roomId, bob, 'join');
    }
  });

  it('knocks, is let in, and takes a knock back', async () => {
    const knock = (roomId: string) => ok(bob, 'POST', `/knock/${roomId}?via=one.test`, { reason: 'please' });
    const rules = [{ type: 'm.room.join_rules', state_key: '', content: { join_rule: 'knock' } }];
    const roomId = await createRoom(alice, { name: 'Door', initial_state: rules });
    await knock(roomId);
    await sees(alice, roomId, bob, 'knock');
    const shown = (await sync(bob)).rooms?.knock?.[roomId]?.knock_state.events ?? [];
    expect(shown.find((event) => event.type === 'm.room.name')?.content['name']).toBe('Door');
    await ok(alice, 'POST', `/rooms/${roomId}/invite`, { user_id: bob.userId });
    await until(
      () => sync(bob),
      (answer) => roomId in (answer.rooms?.invite ?? {}),
    );
    await ok(bob, 'POST', `/rooms/${roomId}/join`, {});
    await sees(alice, roomId, bob, 'join');
    const other = await createRoom(alice, { initial_state: rules });
    await knock(other);
    await sees(alice, other, bob, 'knock');
    await ok(bob, 'POST', `/rooms/${other}/leave`, {});
    await sees(alice, other, bob, 'leave');
    const closed = await createRoom(alice, { initial_state: rules });
    await knock(closed);
    await sees(alice, closed, bob, 'knock');
    const { next_batch: since } = await sync(bob);
    await ok(alice, 'POST', `/rooms/${closed}/kick`, { user_id: bob.userId, reason: 'full' });
    await expectEnding(bob, closed, since, sentAway('full'));
  });

  // A room with a name is joined without the members that it would be called by otherwise.
  it.each([{}, { name: 'Members only' }])('joins a restricted room by membership of another (%j)', async (named) => {
    const club = await createRoom(alice, { preset: 'public_chat' });
    const content = { join_rule: 'restricted', allow: [{ type: 'm.room_membership', room_id: club }] };
    const roomId = await createRoom(alice, {
      ...named,
      initial_state: [{ type: 'm.room.join_rules', state_key: '', content }],
      power_level_content_override: { invite: 50 },
    });
    const refused = await join(bob, roomId, 'one.test');
    expect([refused.status, refused.body['errcode']]).toEqual([403, 'M_FORBIDDEN']);
    expect((await join(bob, club, 'one.test')).status).toBe(200);
    await sees(alice, club, bob, 'join');
    expect((await join(bob, roomId, 'one.test')).status).toBe(200);
    const member = await ok(alice, 'GET', `/rooms/${roomId}/state/m.room.member/${bob.userId}`);
    expect(member).toMatchObject({ membership: 'join', join_authorised_via_users_server: alice.userId });
    // Another user of the same server needs alice as well: nobody there may invite.
    expect((await join(carol, roomId, 'one.test')).body['errcode']).toBe('M_FORBIDDEN');
    expect((await join(carol, club, 'one.test')).status).toBe(200);
    await sees(alice, club, carol, 'join');
    expect((await join(carol, roomId, 'one.test')).status).toBe(200);
    const other = await ok(bob, 'GET', `/rooms/${roomId}/state/m.room.member/${carol.userId}`);
    expect(other).toMatchObject({ membership: 'join', join_authorised_via_users_server: alice.userId });
    await sees(alice, roomId, carol, 'join');
    await say(bob, roomId, 'inside');
    await hears(alice, roomId, 'inside');
    // Who is in needs nobody to let them in: their new name does not bear alice's signature.
    const displayname = `Bob of ${roomId}`;
    await ok(bob, 'PUT', `/profile/${bob.userId}/displayname`, { displayname });
    const renamed = await until(
      () => ok(alice, 'GET', `/rooms/${roomId}/state/m.room.member/${bob.userId}`),
      (content) => content['displayname'] === displayname,
    );
    expect(renamed).toEqual({ membership: 'join', displayname });
    await say(bob, roomId, 'inside still');
    await hears(alice, roomId, 'inside still');
    // Nor does it take her to go, though clients copy what the event before says.
    await setState(carol, roomId, 'm.room.member', { ...other, membership: 'leave' }, carol.userId);
    await sees(alice, roomId, carol, 'leave');
  });

  it('refuses what the other server refuses', async () => {
    const roomId = await createRoom(alice, { preset: 'private_chat' });
    const refused = await join(bob, roomId, 'one.test');
    expect([refused.status, refused.body['errcode']]).toEqual([403, 'M_FORBIDDEN']);
    const unknown = await join(bob, '!nothing:one.test', 'one.test');
    expect([unknown.status, unknown.body['errcode']]).toEqual([404, 'M_NOT_FOUND']);
    const banned = await createRoom(alice, { preset: 'public_chat' });
    await ok(alice, 'POST', `/rooms/${banned}/ban`, { user_id: bob.userId });
    expect((await join(bob, banned, 'one.test')).status).toBe(403);
  });

  it('reads 200 messages from before, and what came during an outage', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    for (let i = 0; i < 200; i++) await say(alice, roomId, `m${i}`);
    expect((await join(bob, roomId, 'one.test')).status).toBe(200);
    const all: unknown[] = [];
    let from = '';
    for (let pages = 0; pages < 20; pages++) {
      const { chunk, end } = await ok<{ chunk: WireEvent[]; end?: string }>(
        bob,
        'GET',
        `/rooms/${roomId}/messages?dir=b&limit=50${from}`,
      );
      all.push(...chunk.flatMap((event) => (event.type === 'm.room.message' ? [event.content['body']] : [])));
      if (end === undefined) break;
      from = `&from=${end}`;
    }
    expect(all).toEqual(Array.from({ length: 200 }, (_, i) => `m${199 - i}`));
    await one.restart();
    await say(bob, roomId, 'while you start');
    await say(alice, roomId, 'after the start');
    await hears(bob, roomId, 'after the start');
    await hears(alice, roomId, 'while you start');
  });

  it('finds rooms by alias, in the directory, in a space', async () => {
    const roomId = await createRoom(alice, {
      ...{ preset: 'public_chat', name: 'Known', room_alias_name: `known-${database}`, visibility: 'public' },
    });
    const alias = encodeURIComponent(`#known-${database}:one.test`);
    expect(await ok(bob, 'GET', `/directory/room/${alias}`)).toMatchObject({ room_id: roomId });
    const { chunk } = await ok<{ chunk: JsonObject[] }>(bob, 'GET', '/publicRooms?server=one.test');
    expect(chunk.map((room) => room['room_id'])).toContain(roomId);
    expect(await ok(bob, 'GET', `/_matrix/client/v1/room_summary/${alias}`)).toMatchObject({ name: 'Known' });
    const space = await createRoom(bob, { creation_content: { type: 'm.space' } });
    await setState(bob, space, 'm.space.child', { via: ['one.test'] }, roomId);
    const { rooms } = await ok<{ rooms: JsonObject[] }>(bob, 'GET', `/_matrix/client/v1/rooms/${space}/hierarchy`);
    expect(rooms.map((room) => room['room_id'])).toEqual([space, roomId]);
    expect((await bob.request('POST', `/join/${alias}`, {})).status).toBe(200);
  });

  it.each(['10', '12'])(
    'tells of rooms that everybody here has left as they are by now (version %s)',
    async (version) => {
      const told = {
        preset: 'public_chat',
        room_version: version,
        creation_content: { type: 'm.space' },
        name: 'Then',
      };
      const [left, closed, child] = [
        await createRoom(alice, told),
        await createRoom(alice, told),
        await createRoom(alice, told),
      ];
      for (const roomId of [left, closed]) {
        expect((await join(bob, roomId, 'one.test')).status).toBe(200);
        await ok(bob, 'POST', `/rooms/${roomId}/leave`, {});
        await sees(alice, roomId, bob, 'leave');
      }
      await setState(alice, left, 'm.room.name', { name: 'Now' });
      await setState(alice, left, 'm.space.child', { via: ['one.test'] }, child);
      await setState(alice, closed, 'm.room.join_rules', { join_rule: 'invite' });
      const own = await createRoom(bob, { creation_content: { type: 'm.space' } });
      for (const roomId of [left, closed]) await setState(bob, own, 'm.space.child', { via: ['one.test'] }, roomId);
      const walk = async (roomId: string): Promise<unknown[]> => {
        const path = `/_matrix/client/v1/rooms/${roomId}/hierarchy`;
        const { rooms } = await ok<{ rooms: JsonObject[] }>(bob, 'GET', path);
        return rooms.map((room) => [room['room_id'], room['name']]);
      };
      const inside = [
        [left, 'Now'],
        [child, 'Then'],
      ];
      expect(await walk(own)).toEqual([[own, undefined], ...inside]);
      expect(await walk(left)).toEqual(inside);
      const summary = (user: TestUser, roomId: string) =>
        user.request<JsonObject>('GET', `/_matrix/client/v1/room_summary/${roomId}`);
      expect((await summary(bob, left)).body).toMatchObject({
        name: 'Now',
        num_joined_members: 1,
        membership: 'leave',
      });
      expect((await summary(bob, closed)).status).toBe(404);
      // Of a room that nobody is in there is no better server to ask.
      const empty = await createRoom(bob, { preset: 'public_chat', name: 'Empty' });
      await ok(bob, 'POST', `/rooms/${empty}/leave`, {});
      expect((await summary(carol, empty)).body).toMatchObject({ name: 'Empty', num_joined_members: 0 });
    },
  );

  it('tell each other whether accounts exist, where both may', async () => {
    const path = '/_matrix/client/unstable/org.matrix.msc3720/account_status';
    const user_ids = [alice.userId, bob.userId, '@ghost:two.test'];
    expect((await alice.request('POST', path, { user_ids })).body).toEqual({
      account_statuses: {
        [alice.userId]: { exists: true, deactivated: false },
        [bob.userId]: { exists: true, deactivated: false },
        '@ghost:two.test': { exists: false },
      },
      failures: [],
    });
    const third = await world.played('third.test');
    const ask = async (name: string, userIds: unknown) => {
      const answer = await third.request(one, 'POST', `/_matrix/federation/unstable/org.matrix.msc3720/${name}`, {
        user_ids: userIds,
      });
      return [answer.status, answer.body];
    };
    const known = { account_statuses: { [alice.userId]: { exists: true, deactivated: false } }, failures: [] };
    expect(await ask('query/account_status', [alice.userId])).toEqual([200, known]);
    expect(await ask('account_status', [alice.userId])).toEqual([200, known]);
    expect(await ask('account_status', [bob.userId])).toMatchObject([400, { errcode: 'M_INVALID_PARAM' }]);
    expect(await ask('account_status', 'all')).toMatchObject([400, { errcode: 'M_BAD_JSON' }]);
  });
});
