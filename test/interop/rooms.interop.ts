import { eventually } from '@rookery/testing';
import { databaseKinds } from '../support/server-process.js';
import { agree } from './agreement.js';
import { IdentityServer } from './identity-server.js';
import { Federation, type Peer } from './peers.js';
import { dig, patienceMs, Person, type WireEvent } from './person.js';

const versions = ['6', '9', '10', '11', '12'];

/** Who may join by way of another room is known to rooms from this version on. */
const hasRestricted = (version: string): boolean => Number(version) >= 8;
const hasKnocks = (version: string): boolean => Number(version) >= 7;

describe.each(databaseKinds)('rooms shared with a live Synapse (%s)', (database) => {
  let federation: Federation;
  let identity: IdentityServer;
  beforeAll(async () => {
    federation = await Federation.start(database);
    identity = new IdentityServer(federation.authority);
    await identity.start();
  }, 400_000);
  afterAll(async () => {
    await identity?.stop();
    await federation?.remove();
  });

  /** The two servers by who makes the rooms. */
  const sides = ['rookery', 'synapse'] as const;
  const peers = (side: (typeof sides)[number]): readonly [Peer, Peer] =>
    side === 'rookery' ? [federation.rookery, federation.synapse] : [federation.synapse, federation.rookery];

  describe.each(sides)('made on the side of %s', (side) => {
    it.each(versions)(
      'version %s: joins, invites, moderation, redactions and an upgrade leave both sides with the same room',
      async (version) => {
        const [home, away] = peers(side);
        const [ann, cat] = [await Person.at(home, 'ann'), await Person.at(home, 'cat')];
        const [bob, dan, eve] = [
          await Person.at(away, 'bob'),
          await Person.at(away, 'dan'),
          await Person.at(away, 'eve'),
        ];
        const alias = `room${version}${ann.localpart}`;
        const roomId = await ann.createRoom({ preset: 'public_chat', room_version: version, room_alias_name: alias });
        await bob.join(`#${alias}:${home.name}`);
        await ann.seesMember(roomId, bob.userId, 'join');
        await cat.join(roomId);

        // Messages, both ways, and one of each side taken back by the other.
        const said = await ann.send(roomId, 'from home');
        await bob.reads(roomId, said);
        const answered = await bob.send(roomId, 'from away');
        await ann.reads(roomId, answered);
        const mine = await bob.send(roomId, 'to be taken back');
        await ann.reads(roomId, mine);
        await ann.call('PUT', `/rooms/${roomId}/redact/${mine}/r1`, { reason: 'no' });
        await bob.call('PUT', `/rooms/${roomId}/redact/${answered}/r2`, {});
        for (const [reader, redacted] of [
          [bob, mine],
          [ann, answered],
        ] as const) {
          await eventually(
            async () => Object.keys((await reader.reads(roomId, redacted)).content).length === 0,
            patienceMs,
          );
        }

        // Invites, kicks and bans.
        await ann.act(roomId, 'invite', { user_id: dan.userId });
        await dan.hears((sync) => dig(sync, 'rooms', 'invite', roomId));
        await dan.join(roomId, home);
        await ann.seesMember(roomId, dan.userId, 'join');
        await ann.act(roomId, 'kick', { user_id: dan.userId, reason: 'out' });
        await bob.seesMember(roomId, dan.userId, 'leave');
        await dan.join(roomId, home);
        await ann.seesMember(roomId, dan.userId, 'join');
        await ann.act(roomId, 'ban', { user_id: dan.userId });
        await bob.seesMember(roomId, dan.userId, 'ban');
        expect((await dan.ask('POST', `/join/${roomId}?via=${home.name}&server_name=${home.name}`, {})).status).toBe(
          403,
        );
        await ann.act(roomId, 'unban', { user_id: dan.userId });
        await bob.seesMember(roomId, dan.userId, 'leave');

        // An invite that is refused, and one that is withdrawn.
        await ann.act(roomId, 'invite', { user_id: eve.userId });
        await eve.hears((sync) => dig(sync, 'rooms', 'invite', roomId));
        await eve.act(roomId, 'leave');
        await ann.seesMember(roomId, eve.userId, 'leave');
        await ann.act(roomId, 'invite', { user_id: eve.userId });
        await eve.hears((sync) => dig(sync, 'rooms', 'invite', roomId));
        await ann.act(roomId, 'kick', { user_id: eve.userId });
        await eve.hears((sync) => dig(sync, 'rooms', 'leave', roomId));

        if (hasRestricted(version)) await restricted(version, ann, bob, roomId);
        if (hasKnocks(version)) await knocks(version, ann, eve);
        await invitedByAddress(version, ann, eve);

        await bob.act(roomId, 'leave');
        await ann.seesMember(roomId, bob.userId, 'leave');
        await bob.join(roomId, home);
        await ann.seesMember(roomId, bob.userId, 'join');
        await agree(ann, bob, roomId);

        // The room moves on, and people with it.
        const { replacement_room: next } = await ann.call<{ replacement_room: string }>(
          'POST',
          `/rooms/${roomId}/upgrade`,
          { new_version: version === '12' ? '12' : versions[versions.indexOf(version) + 1] },
        );
        await bob.hears((sync) => {
          const events = dig(sync, 'rooms', 'join', roomId, 'timeline', 'events') as WireEvent[] | undefined;
          return events?.some((event) => event.type === 'm.room.tombstone');
        });
        await bob.join(next, home);
        await ann.seesMember(next, bob.userId, 'join');
        await bob.reads(next, await ann.send(next, 'here now'));
        await agree(ann, bob, next);
        await agree(ann, bob, roomId);
      },
      900_000,
    );

    /** Whoever is in one room may come into another. */
    async function restricted(version: string, ann: Person, bob: Person, allowed: string): Promise<void> {
      const rule = { join_rule: 'restricted', allow: [{ type: 'm.room_membership', room_id: allowed }] };
      const roomId = await ann.createRoom({
        room_version: version,
        initial_state: [{ type: 'm.room.join_rules', state_key: '', content: rule }],
      });
      const stranger = await Person.at(bob.home, 'stranger');
      const path = `/join/${roomId}?via=${ann.home.name}&server_name=${ann.home.name}`;
      expect((await stranger.ask('POST', path, {})).status).toBe(403);
      await bob.join(roomId, ann.home);
      await ann.seesMember(roomId, bob.userId, 'join');
      await ann.reads(roomId, await bob.send(roomId, 'let in'));
      await agree(ann, bob, roomId);
    }

    /** Somebody knocks, takes it back, knocks again and is let in. */
    async function knocks(version: string, ann: Person, eve: Person): Promise<void> {
      const roomId = await ann.createRoom({
        room_version: version,
        initial_state: [{ type: 'm.room.join_rules', state_key: '', content: { join_rule: 'knock' } }],
      });
      const knock = `/knock/${roomId}?via=${ann.home.name}&server_name=${ann.home.name}`;
      await eve.call('POST', knock, { reason: 'please' });
      await ann.seesMember(roomId, eve.userId, 'knock');
      await eve.hears((sync) => dig(sync, 'rooms', 'knock', roomId));
      // Synapse keeps to itself that a knock at another server's room was taken back.
      if (eve.home.kind === 'rookery') {
        await eve.act(roomId, 'leave');
        await ann.seesMember(roomId, eve.userId, 'leave');
        await eve.call('POST', knock, {});
        await ann.seesMember(roomId, eve.userId, 'knock');
      }
      await ann.act(roomId, 'invite', { user_id: eve.userId });
      await eve.hears((sync) => dig(sync, 'rooms', 'invite', roomId));
      await eve.join(roomId, ann.home);
      await ann.seesMember(roomId, eve.userId, 'join');
      await agree(ann, eve, roomId);
    }

    /** An address is invited before anybody knows whose it is. */
    async function invitedByAddress(version: string, ann: Person, eve: Person): Promise<void> {
      const roomId = await ann.createRoom({ preset: 'private_chat', room_version: version });
      const address = `${eve.localpart}.${version}@example.org`;
      await ann.act(roomId, 'invite', {
        medium: 'email',
        address,
        id_server: identity.name,
        id_access_token: 'anything',
      });
      await identity.bind(eve.home, address, eve.userId);
      await eve.hears((sync) => dig(sync, 'rooms', 'invite', roomId));
      await eve.join(roomId, ann.home);
      await ann.seesMember(roomId, eve.userId, 'join');
      await agree(ann, eve, roomId);
    }

    it('receipts, typing, presence, profiles and messages to devices arrive', async () => {
      const [home, away] = peers(side);
      const [ann, bob] = [await Person.at(home, 'ann'), await Person.at(away, 'bob')];
      const roomId = await ann.createRoom({ preset: 'public_chat' });
      await bob.join(roomId, home);
      await ann.seesMember(roomId, bob.userId, 'join');
      await ann.sync();
      await bob.sync();

      const said = await ann.send(roomId, 'read me');
      await bob.reads(roomId, said);
      await bob.act(roomId, `receipt/m.read/${said}`);
      await ann.hears((sync) => {
        const events = dig(sync, 'rooms', 'join', roomId, 'ephemeral', 'events') as WireEvent[] | undefined;
        return events?.some((event) => dig(event.content, said, 'm.read', bob.userId));
      });
      await bob.call('PUT', `/rooms/${roomId}/typing/${bob.userId}`, { typing: true, timeout: 30_000 });
      await ann.hears((sync) => {
        const events = dig(sync, 'rooms', 'join', roomId, 'ephemeral', 'events') as WireEvent[] | undefined;
        return events?.some((event) => (event.content['user_ids'] as string[] | undefined)?.includes(bob.userId));
      });
      await bob.call('PUT', `/presence/${bob.userId}/status`, { presence: 'online', status_msg: 'here' });
      await ann.hears((sync) => {
        const events = dig(sync, 'presence', 'events') as WireEvent[] | undefined;
        return events?.some((event) => event.sender === bob.userId && event.content['status_msg'] === 'here');
      });
      await bob.call('PUT', `/sendToDevice/org.example.note/t1`, {
        messages: { [ann.userId]: { [ann.deviceId]: { body: 'psst' } } },
      });
      await ann.hears((sync) => {
        const events = dig(sync, 'to_device', 'events') as WireEvent[] | undefined;
        return events?.some((event) => event.type === 'org.example.note' && event.content['body'] === 'psst');
      });
      await bob.call('PUT', `/profile/${bob.userId}/displayname`, { displayname: 'Bobby' });
      expect((await ann.call('GET', `/profile/${bob.userId}`))['displayname']).toBe('Bobby');
      await eventually(async () => {
        const state = await ann.state(roomId);
        return state.some((event) => event.state_key === bob.userId && event.content['displayname'] === 'Bobby');
      }, patienceMs);
      await agree(ann, bob, roomId);
    }, 600_000);

    it('media, the directory, aliases and spaces are found by the other side', async () => {
      const [home, away] = peers(side);
      const [ann, bob] = [await Person.at(home, 'ann'), await Person.at(away, 'bob')];
      const bytes = new Uint8Array(100_000).map((_, n) => (n * 7) % 251);
      const uploaded = await fetch(`${home.baseUrl}/_matrix/media/v3/upload?filename=seven.bin`, {
        method: 'POST',
        headers: { authorization: `Bearer ${ann.token}`, 'content-type': 'application/octet-stream' },
        body: bytes,
      });
      const { content_uri: uri } = (await uploaded.json()) as { content_uri: string };
      const download = await fetch(`${away.baseUrl}/_matrix/client/v1/media/download/${uri.slice('mxc://'.length)}`, {
        headers: { authorization: `Bearer ${bob.token}` },
      });
      expect(download.status).toBe(200);
      expect(Buffer.from(await download.arrayBuffer()).equals(Buffer.from(bytes))).toBe(true);

      const alias = `found${ann.localpart}`;
      const roomId = await ann.createRoom({ preset: 'public_chat', room_alias_name: alias, name: `Found ${alias}` });
      await ann.call('PUT', `/directory/list/room/${roomId}`, { visibility: 'public' });
      const found = await bob.call<{ chunk: { room_id: string }[] }>('POST', `/publicRooms?server=${home.name}`, {
        filter: { generic_search_term: alias },
      });
      expect(found.chunk.map((room) => room.room_id)).toContain(roomId);
      const resolved = await bob.call('GET', `/directory/room/${encodeURIComponent(`#${alias}:${home.name}`)}`);
      expect(resolved['room_id']).toBe(roomId);

      const space = await bob.createRoom({
        preset: 'public_chat',
        creation_content: { type: 'm.space' },
        initial_state: [{ type: 'm.space.child', state_key: roomId, content: { via: [home.name] } }],
      });
      const { rooms } = await bob.call<{ rooms: { room_id: string }[] }>(
        'GET',
        `/_matrix/client/v1/rooms/${encodeURIComponent(space)}/hierarchy`,
      );
      expect(rooms.map((room) => room.room_id)).toEqual([space, roomId]);
      // The other side walks the same space, whose child is its own room.
      await ann.join(space, away);
      const seen = await ann.call<{ rooms: { room_id: string }[] }>(
        'GET',
        `/_matrix/client/v1/rooms/${encodeURIComponent(space)}/hierarchy`,
      );
      expect(seen.rooms.map((room) => room.room_id)).toEqual([space, roomId]);
    }, 600_000);
  });
});
