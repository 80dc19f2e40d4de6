import type { JsonObject } from '@rookery/matrix-types';
import type { TestUser } from '@rookery/testing';
import { nobodyHelps, TwoServers, yan } from '../federation/two-servers.js';
import { databases, ok, say, type WireEvent } from '../rooms/rooms-client.js';
import { registerAdmin } from './support.js';

describe.each(databases)('what was soft-failed (%s)', (database) => {
  let servers: TwoServers;
  let alice: TestUser;
  let roomId: string;
  let path: string;

  beforeAll(async () => {
    servers = await TwoServers.start(database);
    ({ alice } = servers);
    servers.inside.useMissingEvents(nobodyHelps);
    const shared = await servers.shared('12');
    roomId = shared.roomId;
    await say(alice, roomId, 'before');
    const [tip] = await servers.inside.heads(roomId);
    if (!tip) throw new Error('a room without a head');
    await ok(alice, 'POST', `/rooms/${roomId}/ban`, { user_id: yan });
    const late = shared.server.make(
      { type: 'm.room.message', sender: yan, content: { body: 'late' } },
      [tip],
      shared.state,
    );
    expect(await servers.receive(late)).toBe('softFailed');
    await say(alice, roomId, 'after');
    path = `/rooms/${roomId}/event/${encodeURIComponent(late.eventId)}`;
  });
  afterAll(() => servers?.homeserver.stop());

  const wish = (content: JsonObject) =>
    ok(alice, 'PUT', `/user/${alice.userId}/account_data/io.element.synapse.admin_client_config`, content);
  const setAdmin = async (admin: boolean): Promise<void> => {
    const root = await registerAdmin(servers.homeserver, admin ? 'root' : 'root2');
    await ok(root, 'PUT', `/_synapse/admin/v1/users/${alice.userId}/admin`, { admin });
  };
  const page = async (): Promise<WireEvent[]> =>
    (await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=20`)).chunk;
  const bodies = (events: readonly WireEvent[]): unknown[] =>
    events.filter((event) => event.type === 'm.room.message').map((event) => event.content['body']);

  it('is shown to administrators who want that, and to nobody else', async () => {
    await wish({ return_soft_failed_events: true });
    expect((await alice.request('GET', path)).status).toBe(404);
    expect(bodies(await page())).not.toContain('late');

    await setAdmin(true);
    const event = await ok<WireEvent>(alice, 'GET', path);
    expect(event).toMatchObject({ content: { body: 'late' }, unsigned: { 'io.element.synapse.soft_failed': true } });
    const events = await page();
    expect(bodies(events)).toContain('late');
    const flagged = events.filter((one) => one.unsigned?.['io.element.synapse.soft_failed'] !== undefined);
    expect(bodies(flagged)).toEqual(['late']);
    const context = await ok<{ event: WireEvent }>(alice, 'GET', path.replace('/event/', '/context/'));
    expect(context.event.content['body']).toBe('late');

    await wish({ return_soft_failed_events: false });
    expect((await alice.request('GET', path)).status).toBe(404);
    expect(bodies(await page())).not.toContain('late');

    await wish({ return_soft_failed_events: true });
    await setAdmin(false);
    expect((await alice.request('GET', path)).status).toBe(404);
  });
});
