import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

interface Page {
  readonly chunk: { readonly event_id: string }[];
}
interface Sync {
  readonly rooms: { readonly join: Record<string, { readonly timeline: { readonly events: { event_id: string }[] } }> };
}

describe.each(['sqlite', 'postgres'] as const)('filters of events by what points to them (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  const sent: Record<string, string> = {};

  const send = async (user: TestUser, name: string, relation?: object): Promise<void> => {
    const content = { msgtype: 'm.text', body: name, ...(relation && { 'm.relates_to': relation }) };
    const { status, body } = await user.request('PUT', `/rooms/${roomId}/send/m.room.message/${name}`, content);
    expect(status).toBe(200);
    sent[name] = String(body['event_id']);
  };

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database, fetch: validatedFetch });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    const { body } = await alice.request('POST', '/createRoom', { preset: 'public_chat' });
    roomId = String(body['room_id']);
    expect((await bob.request('POST', `/rooms/${roomId}/join`, {})).status).toBe(200);
    for (const name of ['threaded', 'quoted', 'plain']) await send(alice, name);
    await send(alice, 'reply', { rel_type: 'm.thread', event_id: sent['threaded'] });
    await send(bob, 'quote', { rel_type: 'm.reference', event_id: sent['quoted'] });
  });
  afterAll(() => homeserver?.stop());

  it.each<[object, () => string[]]>([
    [{ related_by_rel_types: ['m.thread'] }, () => ['threaded']],
    [{ related_by_rel_types: ['m.thread', 'm.reference'] }, () => ['quoted', 'threaded']],
    [{ related_by_senders: ['@bob:rookery.test'] }, () => ['quoted']],
    [{ related_by_rel_types: ['m.thread'], related_by_senders: ['@bob:rookery.test'] }, () => []],
    [{ related_by_rel_types: [] }, () => []],
  ])('%j', async (filter, names) => {
    const expected = names().map((name) => sent[name]);
    const text = encodeURIComponent(JSON.stringify(filter));
    const page = await alice.request<Page>('GET', `/rooms/${roomId}/messages?dir=b&limit=50&filter=${text}`);
    expect(page.body.chunk.map((event) => event.event_id)).toEqual(expected);
    const whole = encodeURIComponent(JSON.stringify({ room: { timeline: { ...filter, limit: 50 } } }));
    const sync = await alice.request<Sync>('GET', `/sync?filter=${whole}`);
    const timeline = sync.body.rooms.join[roomId]?.timeline.events ?? [];
    expect(timeline.map((event) => event.event_id)).toEqual(expected.toReversed());
  });
});
