import type { JsonObject } from '@rookery/matrix-types';
import { roomVersionRules, parsePdu, signEvent } from '@rookery/events';
import type { TestHomeserver, TestUser } from '@rookery/testing';
import { probe } from '../modules/probe-server.js';
import { join } from 'node:path';
import { createRoom, databases, ok, outcome, type WireEvent } from '../rooms/rooms-client.js';
import { type Asked, FederationWorld, type PlayedServer } from './federation-world.js';

const invite = '/_matrix/federation/v2/invite/';

describe.each(databases)('a new room with people of other servers (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let alice: TestUser;
  let friendly: PlayedServer;
  let strict: PlayedServer;

  const signed = ({ body }: Asked, by: PlayedServer): JsonObject => {
    const { event, room_version: version } = JSON.parse(body) as { event: JsonObject; room_version: string };
    return { event: signEvent(parsePdu(event, roomVersionRules(version)!), by.name, by.key).pdu };
  };
  beforeAll(async () => {
    world = await FederationWorld.create();
    probe.reset();
    const settings = { modules: [{ module: join(import.meta.dirname, '../modules/fixtures/probe.ts') }] };
    home = await world.homeserver('home.test', { database, settings });
    friendly = await world.played('friendly.test');
    strict = await world.played('strict.test');
    friendly.answer = (asked, response) =>
      void response.end(JSON.stringify(asked.url.startsWith(invite) ? signed(asked, friendly) : { pdus: {} }));
    strict.answer = (_, response) =>
      void response.writeHead(403).end('{"errcode":"M_INVITE_BLOCKED","error":"Not from you"}');
    alice = await home.registerUser('alice');
  });
  afterAll(() => world.stop());

  const membersOf = async (roomId: string): Promise<Record<string, unknown>> => {
    const { chunk } = await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/members`);
    return Object.fromEntries(chunk.map((event) => [event.state_key, event.content['membership']]));
  };

  it('is there, and says whose server does not answer', async () => {
    const body = await ok(alice, 'POST', '/createRoom', {
      invite: ['@dora:down.test', '@bob:friendly.test', '@dan:down.test', '@ben:friendly.test'],
      name: 'Four friends',
    });
    const roomId = body['room_id'] as string;
    expect(await membersOf(roomId)).toEqual({
      [alice.userId]: 'join',
      '@bob:friendly.test': 'invite',
      '@ben:friendly.test': 'invite',
    });
    expect(body['io.rookery.not_invited']).toEqual({
      '@dora:down.test': { errcode: 'M_UNKNOWN', error: expect.any(String) as unknown },
      '@dan:down.test': { errcode: 'M_UNKNOWN', error: expect.any(String) as unknown },
    });
    expect(await ok(alice, 'POST', '/createRoom', { invite: ['@bob:friendly.test'] })).toEqual({
      room_id: expect.any(String) as unknown,
    });
  });

  it('invites all others when somebody is refused, and passes on why', async () => {
    const before = friendly.asked.length;
    const answer = await alice.request('POST', '/createRoom', { invite: ['@sue:strict.test', '@bob:friendly.test'] });
    expect(outcome(answer)).toBe('403 M_INVITE_BLOCKED');
    expect(friendly.asked.slice(before).filter(({ url }) => url.startsWith(invite))).toHaveLength(1);
  });

  it('says which addresses could not be invited, and tries each', async () => {
    const byAddress = (address: string): JsonObject => ({
      ...{ medium: 'email', address, id_server: 'identity.down.test', id_access_token: 'token' },
    });
    const body = await ok(alice, 'POST', '/createRoom', {
      invite: ['@bob:friendly.test'],
      invite_3pid: [byAddress('dora@example.org'), byAddress('dan@example.org')],
    });
    expect((await membersOf(body['room_id'] as string))['@bob:friendly.test']).toBe('invite');
    const failure = { errcode: 'M_UNKNOWN', error: expect.any(String) as unknown };
    expect(body['io.rookery.not_invited']).toEqual({ 'dora@example.org': failure, 'dan@example.org': failure });
    // A refusal counts for more than what could not be asked.
    const refused = { invite: ['@sue:strict.test'], invite_3pid: [byAddress('dora@example.org')] };
    expect(outcome(await alice.request('POST', '/createRoom', refused))).toBe('403 M_INVITE_BLOCKED');
  });

  it('is of a version that the server of the invited may not know', async () => {
    const old = await world.played('old.test');
    const refusal = { errcode: 'M_INCOMPATIBLE_ROOM_VERSION', error: 'Never heard of it', room_version: '12' };
    old.answer = (_, response) => void response.writeHead(400).end(JSON.stringify(refusal));
    const answer = await alice.request('POST', '/createRoom', { invite: ['@olga:old.test'] });
    expect(outcome(answer)).toBe('400 M_UNSUPPORTED_ROOM_VERSION');
    const roomId = await createRoom(alice);
    const later = await alice.request('POST', `/rooms/${roomId}/invite`, { user_id: '@olga:old.test' });
    expect(outcome(later)).toBe('400 M_UNSUPPORTED_ROOM_VERSION');
  });

  it('asks modules about each of them, those of other servers too', async () => {
    probe.answers.checkEventAllowed = ({ stateKey }: { stateKey?: string }) => stateKey !== '@bad:friendly.test';
    const before = friendly.asked.length;
    const answer = await alice.request('POST', '/createRoom', { invite: ['@bad:friendly.test', '@bob:friendly.test'] });
    const asked = probe.fired.filter(
      ({ args }) => (args[0] as { stateKey?: string } | undefined)?.stateKey === '@bob:friendly.test',
    );
    probe.reset();
    expect(outcome(answer)).toBe('403 M_FORBIDDEN');
    expect(friendly.asked.slice(before).filter(({ url }) => url.startsWith(invite)).length).toBe(1);
    expect(asked.map(({ name, context }) => [name, context.duringRoomCreation])).toEqual(
      expect.arrayContaining([
        ['checkEventAllowed', true],
        ['checkEventForSpam', true],
      ]),
    );
  });

  it('can be invited to later', async () => {
    const roomId = await createRoom(alice, { invite: ['@dora:down.test'] });
    const again = await alice.request('POST', `/rooms/${roomId}/invite`, { user_id: '@dora:down.test' });
    expect(outcome(again)).toBe('502 M_UNKNOWN');
    await ok(alice, 'POST', `/rooms/${roomId}/invite`, { user_id: '@bob:friendly.test' });
    expect((await membersOf(roomId))['@bob:friendly.test']).toBe('invite');
  });
});
