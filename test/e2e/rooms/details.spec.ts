import { MatrixError } from '@rookery/matrix-types';
import { EventPersister } from '@rookery/rooms';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import {
  act,
  createRoom,
  databases,
  join,
  leave,
  nextTransaction,
  ok,
  outcome,
  say,
  setState,
  startHomeserver,
  type WireEvent,
} from './rooms-client.js';

interface Page {
  readonly start: string;
  readonly end?: string;
  readonly chunk: readonly WireEvent[];
  readonly next_batch?: string;
}

const v1 = '/_matrix/client/v1';
const wide = { per_second: 1000, burst_count: 1000 };
const related = (relType: string, eventId: string, more: object = {}): object => ({
  'm.relates_to': { rel_type: relType, event_id: eventId },
  ...more,
});
const bundled = ({ unsigned }: WireEvent, relType: string): Record<string, unknown> | undefined =>
  (unsigned?.['m.relations'] as Record<string, Record<string, unknown>> | undefined)?.[relType];

describe.each(databases)('details of the rooms API (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let carol: TestUser;

  const redact = (user: TestUser, roomId: string, eventId: string): Promise<unknown> =>
    ok(user, 'PUT', `/rooms/${roomId}/redact/${encodeURIComponent(eventId)}/${nextTransaction()}`, {});
  const eventOf = (user: TestUser, roomId: string, eventId: string): Promise<WireEvent> =>
    ok<WireEvent>(user, 'GET', `/rooms/${roomId}/event/${eventId}`);
  const threadsOf = (user: TestUser, roomId: string, query = ''): Promise<Page> =>
    ok<Page>(user, 'GET', `${v1}/rooms/${roomId}/threads${query}`);

  beforeAll(async () => {
    homeserver = await startHomeserver(database, {
      allow_guest_access: true,
      room_list_publication_rules: [{ action: 'allow' }],
      rc_third_party_invite: wide,
    });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    carol = await homeserver.registerUser('carol');
  });
  afterAll(() => homeserver?.stop());

  it('members whose membership is one or is not another', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat', invite: [carol.userId] });
    await join(bob, roomId);
    await leave(bob, roomId);
    const members = async (query: string): Promise<string[]> => {
      const { chunk } = await ok<Page>(alice, 'GET', `/rooms/${roomId}/members${query}`);
      return chunk.map((event) => String(event.content['membership'])).sort();
    };
    expect(await members('')).toEqual(['invite', 'join', 'leave']);
    expect(await members('?membership=join')).toEqual(['join']);
    expect(await members('?not_membership=join')).toEqual(['invite', 'leave']);
    expect(await members('?membership=join&not_membership=leave')).toEqual(['invite', 'join']);
    expect(await members('?membership=leave&not_membership=leave')).toEqual(['invite', 'join', 'leave']);
    expect(await members('?membership=ban&not_membership=join')).toEqual(['invite', 'leave']);
  });

  it('members of a time are for those who may see what was said then', async () => {
    const hidden = { type: 'm.room.history_visibility', content: { history_visibility: 'joined' } };
    const roomId = await createRoom(alice, { preset: 'public_chat', initial_state: [hidden] });
    await join(carol, roomId);
    await say(alice, roomId, 'before');
    const now = async (): Promise<string> => (await ok<Page>(alice, 'GET', '/sync?timeout=0')).next_batch ?? '';
    const members = async (user: TestUser, at: string): Promise<string> => {
      const answer = await user.request<Page>('GET', `/rooms/${roomId}/members?at=${at}&membership=join`);
      if (answer.status !== 200) return outcome(answer);
      const names = answer.body.chunk.map(({ state_key: userId = '' }) => userId.slice(1, userId.indexOf(':')));
      return names.sort().join(' ');
    };
    const before = await now();
    await join(bob, roomId);
    const after = await now();
    for (const user of [alice, carol]) expect(await members(user, before)).toBe('alice carol');
    expect(await members(bob, before)).toBe('403 M_FORBIDDEN');
    expect(await members(bob, after)).toBe('alice bob carol');
    await setState(alice, roomId, 'm.room.history_visibility', { history_visibility: 'shared' });
    const shared = await now();
    const dave = await homeserver.registerUser('dave');
    await join(dave, roomId);
    expect(await members(dave, after)).toBe('403 M_FORBIDDEN');
    expect(await members(dave, shared)).toBe('alice bob carol');
  });

  it('threads end with their redacted replies, and are none without any', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    const roots = [await say(alice, roomId, 'older'), await say(alice, roomId, 'newer')];
    const replies: string[] = [];
    for (const root of [...roots, roots[0]!]) replies.push(await say(alice, roomId, 're', related('m.thread', root)));
    const listed = async (): Promise<string[]> =>
      (await threadsOf(alice, roomId)).chunk.map(
        (root) => `${root.content['body']} ${bundled(root, 'm.thread')?.['count']}`,
      );
    expect(await listed()).toEqual(['older 2', 'newer 1']);
    await redact(alice, roomId, replies[2]!);
    expect(await listed()).toEqual(['newer 1', 'older 1']);
    await redact(alice, roomId, replies[1]!);
    expect(await listed()).toEqual(['older 1']);
    await redact(alice, roomId, replies[0]!);
    expect(await listed()).toEqual([]);
    expect(bundled(await eventOf(alice, roomId, roots[0]!), 'm.thread')).toBeUndefined();
  });

  it('threads on what ignored users said show the thread and not what they said', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    const root = await say(bob, roomId, 'unheard');
    await say(bob, roomId, 'not counted', related('m.thread', root));
    const reply = await say(alice, roomId, 'counted', related('m.thread', root));
    await say(bob, roomId, '* x', related('m.replace', root, { 'm.new_content': { msgtype: 'm.text', body: 'x' } }));
    const path = `/user/${alice.userId}/account_data/m.ignored_user_list`;
    await ok(alice, 'PUT', path, { ignored_users: { [bob.userId]: {} } });
    const [shown, ...more] = (await threadsOf(alice, roomId)).chunk;
    expect(more).toEqual([]);
    expect(shown).toMatchObject({ event_id: root, sender: bob.userId, content: {} });
    expect(shown!.content).toEqual({});
    expect(bundled(shown!, 'm.replace')).toBeUndefined();
    expect(bundled(shown!, 'm.thread')).toMatchObject({ count: 1, latest_event: { event_id: reply } });
    await ok(alice, 'PUT', path, { ignored_users: {} });
    expect((await threadsOf(alice, roomId)).chunk[0]).toMatchObject({ content: { body: 'unheard' } });
  });

  it('what is redacted keeps what refers to it, but no edits', async () => {
    const roomId = await createRoom(alice);
    const root = await say(alice, roomId, 'root');
    const reply = await say(alice, roomId, 'reply', related('m.thread', root));
    const quote = await say(alice, roomId, 'quote', related('m.reference', root));
    const edit = { 'm.new_content': { msgtype: 'm.text', body: 'better' } };
    for (const eventId of [root, reply]) await say(alice, roomId, '* better', related('m.replace', eventId, edit));
    await redact(alice, roomId, root);
    const [listed] = (await threadsOf(alice, roomId)).chunk;
    for (const event of [listed!, await eventOf(alice, roomId, root)]) {
      expect(event.content).toEqual({});
      expect(bundled(event, 'm.thread')).toMatchObject({ count: 1, latest_event: { event_id: reply } });
      expect(bundled(event, 'm.reference')).toEqual({ chunk: [{ event_id: quote }] });
      expect(bundled(event, 'm.replace')).toBeUndefined();
    }
    expect(bundled(bundled(listed!, 'm.thread')?.['latest_event'] as WireEvent, 'm.replace')).toMatchObject({
      content: edit,
    });
  });

  it('edits that cannot be are not bundled', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    const other = await createRoom(alice);
    await join(bob, roomId);
    const root = await say(alice, roomId, 'root');
    const text = (body: string): object => ({ 'm.new_content': { msgtype: 'm.text', body } });
    const shown = async (eventId = root): Promise<unknown> =>
      bundled(await eventOf(alice, roomId, eventId), 'm.replace')?.['event_id'];
    await say(alice, roomId, '* without content', related('m.replace', root));
    await say(alice, roomId, '* odd content', related('m.replace', root, { 'm.new_content': 'x' }));
    await say(bob, roomId, '* of somebody else', related('m.replace', root, text('x')));
    await say(alice, other, '* elsewhere', related('m.replace', root, text('x')));
    await ok(
      alice,
      'PUT',
      `/rooms/${roomId}/send/org.example/${nextTransaction()}`,
      related('m.replace', root, text('x')),
    );
    expect(await shown()).toBeUndefined();
    const edit = await say(alice, roomId, '* better', related('m.replace', root, text('better')));
    await say(alice, roomId, '* without content', related('m.replace', root));
    expect(await shown()).toBe(edit);
    await say(alice, roomId, '* edit of an edit', related('m.replace', edit, text('x')));
    expect([await shown(), await shown(edit)]).toEqual([edit, undefined]);
    const best = await say(alice, roomId, '* best', related('m.replace', root, text('best')));
    expect(await shown()).toBe(best);
    await redact(alice, roomId, best);
    expect(await shown()).toBe(edit);
    const secret = `/rooms/${roomId}/send/m.room.encrypted/`;
    const cipher = { algorithm: 'm.megolm.v1.aes-sha2', ciphertext: 'x', session_id: 'y' };
    const { event_id: hidden } = await ok<WireEvent>(alice, 'PUT', secret + nextTransaction(), cipher);
    const again = { ...cipher, ...related('m.replace', hidden) };
    const { event_id: changed } = await ok<WireEvent>(alice, 'PUT', secret + nextTransaction(), again);
    expect(await shown(hidden)).toBe(changed);
  });

  it('pages begin where they were asked to, and end where the reader left', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    const { next_batch: since } = await ok<Page>(bob, 'GET', '/sync?timeout=0');
    const before = await say(alice, roomId, 'before');
    await leave(bob, roomId);
    for (let index = 0; index < 30; index++) await say(alice, roomId, `after ${index}`);
    for (const direction of ['f', 'b']) {
      const path = `/rooms/${roomId}/messages?dir=${direction}&limit=3&from=${since}`;
      expect((await ok<Page>(bob, 'GET', path)).start).toBe(since);
    }
    const forth = await ok<Page>(bob, 'GET', `/rooms/${roomId}/messages?dir=f&limit=5&from=${since}`);
    expect(forth.chunk.map((event) => event.content['body'] ?? event.content['membership'])).toEqual([
      'before',
      'leave',
    ]);
    expect(forth).not.toHaveProperty('end');
    const back = await ok<Page>(bob, 'GET', `/rooms/${roomId}/messages?dir=b&limit=2`);
    expect(back.chunk[1]?.event_id).toBe(before);
  });

  it('the event nearest to a time is found behind many that cannot be seen', async () => {
    const hidden = { type: 'm.room.history_visibility', content: { history_visibility: 'joined' } };
    const roomId = await createRoom(alice, { preset: 'public_chat', initial_state: [hidden] });
    const start = await say(alice, roomId, 'hidden');
    for (let index = 0; index < 60; index++) await say(alice, roomId, `hidden ${index}`);
    await join(bob, roomId);
    const seen = await say(alice, roomId, 'seen');
    await leave(bob, roomId);
    for (let index = 0; index < 60; index++) await say(alice, roomId, `hidden again ${index}`);
    const nearest = async (query: string): Promise<WireEvent> => {
      const found = await ok<WireEvent>(bob, 'GET', `${v1}/rooms/${roomId}/timestamp_to_event?${query}`);
      return eventOf(bob, roomId, found.event_id);
    };
    const { origin_server_ts: first } = await eventOf(alice, roomId, start);
    expect((await nearest(`dir=f&ts=${first + 1}`)).content).toMatchObject({ membership: 'join' });
    const { origin_server_ts: ts } = await eventOf(bob, roomId, seen);
    expect((await nearest(`dir=b&ts=${ts + 1_000_000}`)).content).toMatchObject({ membership: 'leave' });
    const path = `${v1}/rooms/${roomId}/timestamp_to_event?dir=f&ts=${ts + 1_000_000}`;
    expect(outcome(await bob.request('GET', path))).toBe('404 M_NOT_FOUND');
  });

  it('the creators of a room do not follow into the one that replaces it', async () => {
    const creation = {
      room_version: '12',
      creation_content: { additional_creators: [bob.userId], type: 'org.example' },
    };
    const creatorsAfter = async (body: object): Promise<unknown> => {
      const roomId = await createRoom(alice, creation);
      const { replacement_room: next } = await ok<{ replacement_room: string }>(
        alice,
        'POST',
        `/rooms/${roomId}/upgrade`,
        { new_version: '12', ...body },
      );
      const create = await ok(alice, 'GET', `/rooms/${next}/state/m.room.create`);
      expect(create).toMatchObject({ type: 'org.example', predecessor: { room_id: roomId } });
      return create['additional_creators'];
    };
    expect(await creatorsAfter({})).toBeUndefined();
    expect(await creatorsAfter({ additional_creators: [carol.userId] })).toEqual([carol.userId]);
    expect(await creatorsAfter({ new_version: '11', additional_creators: [carol.userId] })).toBeUndefined();
  });

  it('rooms shared with somebody are not listed for what is no user or no token', async () => {
    const mutual = async (query: string): Promise<string> =>
      outcome(await alice.request('GET', `${v1}/mutual_rooms${query}`));
    expect(await mutual(`?user_id=${bob.userId}`)).toBe('200');
    expect(await ok(alice, 'GET', `${v1}/mutual_rooms?user_id=@nobody:rookery.test`)).toEqual({ joined: [], count: 0 });
    for (const query of ['?user_id=bob', `?user_id=${alice.userId}`, `?user_id=${bob.userId}&from=x`])
      expect([query, await mutual(query)]).toEqual([query, '400 M_INVALID_PARAM']);
    for (const query of ['', '?user_id=']) expect(await mutual(query)).toBe('400 M_MISSING_PARAM');
  });

  it('guests look into a room that is open to all, and hear what is said next', async () => {
    const open = { type: 'm.room.history_visibility', content: { history_visibility: 'world_readable' } };
    const roomId = await createRoom(alice, { visibility: 'public', preset: 'private_chat', initial_state: [open] });
    await say(alice, roomId, 'first');
    const { body: guest } = await homeserver.request('POST', '/register?kind=guest', {});
    const token = String(guest['access_token']);
    const visit = async (path: string): Promise<unknown[]> => {
      const answer = await homeserver.request<{ rooms?: { room_id: string }[] }>('GET', path, undefined, token);
      return [outcome(answer), ...(answer.body.rooms ?? []).map((listed) => listed.room_id)];
    };
    const [space, closed] = [
      await createRoom(alice, { preset: 'public_chat', creation_content: { type: 'm.space' } }),
      await createRoom(alice),
    ];
    for (const child of [roomId, closed])
      await setState(alice, space, 'm.space.child', { via: ['rookery.test'] }, child);
    expect(await visit(`${v1}/rooms/${roomId}/hierarchy`)).toEqual(['200', roomId]);
    expect(await visit(`${v1}/rooms/${space}/hierarchy`)).toEqual(['200', space, roomId]);
    expect(await visit(`${v1}/rooms/${closed}/hierarchy`)).toEqual(['403 M_FORBIDDEN']);
    expect(await visit('/capabilities')).toEqual(['200']);
    const { next_batch: since } = await ok<Page>(alice, 'GET', '/sync?timeout=0');
    expect(await visit(`/keys/changes?from=${since}&to=${since}`)).toEqual(['200']);
    const { status, body: room } = await homeserver.request<{
      messages: { start?: string; end: string; chunk: WireEvent[] };
      membership?: string;
      visibility: string;
    }>('GET', `/rooms/${roomId}/initialSync?limit=2`, undefined, token);
    expect([status, room.visibility, room.membership]).toEqual([200, 'public', undefined]);
    expect(room.messages.chunk.at(-1)?.content).toMatchObject({ body: 'first' });
    const said = await say(alice, roomId, 'second');
    const { body: news } = await homeserver.request<{ chunk: WireEvent[] }>(
      'GET',
      `/events?room_id=${roomId}&from=${room.messages.end}&timeout=30000`,
      undefined,
      token,
    );
    expect(news.chunk.map((event) => event.event_id)).toEqual([said]);
    const { body: back } = await homeserver.request<Page>(
      'GET',
      `/rooms/${roomId}/messages?dir=b&limit=1&from=${room.messages.start}`,
      undefined,
      token,
    );
    expect(back.chunk.map((event) => event.type)).toEqual(['m.room.history_visibility']);
    const whole = await ok<typeof room>(alice, 'GET', `/rooms/${roomId}/initialSync?limit=100`);
    expect(whole).toMatchObject({ membership: 'join', visibility: 'public' });
    expect(whole.messages).not.toHaveProperty('start');
  });

  it('what was redacted is shown nowhere: not as the name of a room, and not as that of a member', async () => {
    const options = { preset: 'public_chat', visibility: 'public', name: 'rudename', topic: 'rudetopic' };
    const roomId = await createRoom(alice, options);
    const rude = await homeserver.registerUser('rude');
    await ok(rude, 'PUT', `/profile/${rude.userId}/displayname`, { displayname: 'rudeman' });
    await join(rude, roomId);
    const listed = async (): Promise<Record<string, unknown> | undefined> => {
      const filter = { generic_search_term: 'rude' };
      return (await ok<{ chunk: Record<string, unknown>[] }>(bob, 'POST', '/publicRooms', { filter })).chunk[0];
    };
    const memberOf = async (): Promise<unknown> => {
      const path = `/rooms/${roomId}/joined_members`;
      return (await ok<{ joined: Record<string, object> }>(alice, 'GET', path)).joined[rude.userId];
    };
    expect(await listed()).toMatchObject({ room_id: roomId, name: 'rudename', topic: 'rudetopic' });
    expect(await memberOf()).toMatchObject({ display_name: 'rudeman' });
    for (const event of await ok<WireEvent[]>(alice, 'GET', `/rooms/${roomId}/state`)) {
      const isRude = ['m.room.name', 'm.room.topic'].includes(event.type) || event.state_key === rude.userId;
      if (isRude) await redact(alice, roomId, event.event_id);
    }
    expect(await listed()).toBeUndefined();
    expect(await memberOf()).toEqual({ display_name: null, avatar_url: null });
    const summary = await ok(bob, 'GET', `${v1}/room_summary/${roomId}`);
    expect(summary).toMatchObject({ join_rule: 'public', num_joined_members: 2 });
    expect(Object.keys(summary)).not.toEqual(expect.arrayContaining(['name']));
    expect(Object.keys(summary)).not.toEqual(expect.arrayContaining(['topic']));
    await setState(alice, roomId, 'm.room.name', { name: 'rude no more' });
    expect(await listed()).toMatchObject({ name: 'rude no more' });
  });

  it('what was forgotten is closed, unless it is open to all or one comes back', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    const said = await say(alice, roomId, 'forgettable');
    await leave(bob, roomId);
    const ways = [
      `/rooms/${roomId}/event/${said}`,
      `/rooms/${roomId}/context/${said}`,
      `${v1}/rooms/${roomId}/relations/${said}`,
      `/rooms/${roomId}/messages?dir=b`,
      `/rooms/${roomId}/state`,
      `/rooms/${roomId}/members`,
      `/rooms/${roomId}/initialSync`,
      `${v1}/rooms/${roomId}/threads`,
      `${v1}/rooms/${roomId}/timestamp_to_event?dir=b&ts=9999999999999`,
    ];
    const reached = (): Promise<string[]> =>
      Promise.all(ways.map(async (path) => outcome(await bob.request('GET', path))));
    expect(await reached()).toEqual(ways.map(() => '200'));
    await ok(bob, 'POST', `/rooms/${roomId}/forget`, {});
    expect(await reached()).toEqual(ways.map((_, index) => (index < 3 ? '404 M_NOT_FOUND' : '403 M_FORBIDDEN')));
    await setState(alice, roomId, 'm.room.history_visibility', { history_visibility: 'world_readable' });
    expect(await reached()).toEqual(ways.map(() => '200'));
    await setState(alice, roomId, 'm.room.history_visibility', { history_visibility: 'shared' });
    expect((await reached())[0]).toBe('404 M_NOT_FOUND');
    await join(bob, roomId);
    expect(await reached()).toEqual(ways.map(() => '200'));
  });

  it('a transaction id of one endpoint says nothing to another', async () => {
    const roomId = await createRoom(alice);
    const send = async (path: string, body: object): Promise<string> =>
      (await ok<{ event_id: string }>(alice, 'PUT', `/rooms/${roomId}/${path}`, body)).event_id;
    const longest = 'x'.repeat(255);
    for (const txnId of ['same', longest]) {
      const said = await send(`send/m.room.message/${txnId}`, { msgtype: 'm.text', body: 'regretted' });
      const taken = await send(`redact/${said}/${txnId}`, { reason: 'regret' });
      expect(taken).not.toBe(said);
      expect((await eventOf(alice, roomId, said)).content).toEqual({});
      expect(await send(`redact/${said}/${txnId}`, {})).toBe(taken);
      expect(await send(`send/m.room.message/${txnId}`, { msgtype: 'm.text', body: 'again' })).toBe(said);
      for (const eventId of [said, taken])
        expect((await eventOf(alice, roomId, eventId)).unsigned).toMatchObject({ transaction_id: txnId });
    }
    const [first] = [await send('send/m.room.message/kept', {}), await homeserver.restart()];
    expect(await send('send/m.room.message/kept', {})).toBe(first);
    const gone = await send(`redact/${first}/kept`, {});
    await homeserver.restart();
    expect(await send(`redact/${first}/kept`, {})).toBe(gone);
  });

  it('rooms are told of to those whom their join rules let in, where their versions know these', async () => {
    const open = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, open);
    const seen = async (version: string, rule: string): Promise<string> => {
      const content = { join_rule: rule, allow: [{ type: 'm.room_membership', room_id: open }] };
      const roomId = await createRoom(alice, {
        room_version: version,
        initial_state: [{ type: 'm.room.join_rules', content }],
      });
      const readers = [carol, bob].map(async (user) => {
        const path = `${v1}/room_summary/${encodeURIComponent(roomId)}`;
        const { status, body } = await user.request<{ allowed_room_ids?: string[] }>('GET', path);
        const walk = await user.request('GET', `${v1}/rooms/${encodeURIComponent(roomId)}/hierarchy`);
        expect(walk.status === 200).toBe(status === 200);
        return `${status}${body.allowed_room_ids ? ' restricted' : ''}`;
      });
      return (await Promise.all(readers)).join(', ');
    };
    expect(await seen('6', 'knock')).toBe('404, 404');
    expect(await seen('7', 'knock')).toBe('200, 200');
    expect(await seen('7', 'restricted')).toBe('404, 404');
    expect(await seen('8', 'restricted')).toBe('404, 200 restricted');
    expect(await seen('9', 'knock_restricted')).toBe('404, 404');
    expect(await seen('10', 'knock_restricted')).toBe('200 restricted, 200 restricted');
    expect(await seen('12', 'nonsense')).toBe('404, 404');
    expect(await seen('1', 'public')).toBe('200, 200');
  });

  it('a summary tells whoever says who they are what they are to the room', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat', invite: [carol.userId] });
    const path = `${v1}/room_summary/${roomId}`;
    const membership = async (user: TestUser): Promise<unknown> => (await ok(user, 'GET', path))['membership'];
    expect([await membership(alice), await membership(carol), await membership(bob)]).toEqual([
      ...['join', 'invite', 'leave'],
    ]);
    const anonymous = await homeserver.request('GET', path);
    expect(anonymous).toMatchObject({ status: 200, body: { room_id: roomId } });
    expect(anonymous.body).not.toHaveProperty('membership');
  });

  it('topics are told from outside in plain text', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat', topic: 'as made' });
    const topic = async (content?: object): Promise<unknown> => {
      if (content) await setState(alice, roomId, 'm.room.topic', content);
      return (await ok(bob, 'GET', `${v1}/room_summary/${roomId}`))['topic'];
    };
    const forms = (...texts: unknown[]): object => ({ 'm.topic': { 'm.text': texts } });
    const html = { body: '<b>bold</b>', mimetype: 'text/html' };
    expect(await topic()).toBe('as made');
    expect(await topic({ topic: 'old' })).toBe('old');
    expect(await topic(forms(html, { body: 'plain', mimetype: 'text/plain' }))).toBe('plain');
    expect(await topic({ topic: 'old', ...forms(html, { body: 'new' }, { body: 'newer' }) })).toBe('new');
    expect(await topic({ topic: 'old', ...forms(html) })).toBe('old');
    expect(await topic(forms(html))).toBeUndefined();
    for (const odd of [7, [], {}, { 'm.text': 7 }, { 'm.text': [7, null] }, { 'm.text': [{ body: 7 }] }])
      expect(await topic({ topic: 'old', 'm.topic': odd })).toBe('old');
  });

  it('guests leave a room that is closed to them, and nobody else does', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    const { body: guest } = await homeserver.request('POST', '/register?kind=guest', {});
    const access = (value: string): Promise<string> =>
      setState(alice, roomId, 'm.room.guest_access', { guest_access: value });
    const come = (): Promise<string> =>
      homeserver
        .request('POST', `/rooms/${roomId}/join`, {}, String(guest['access_token']))
        .then((answer) => outcome(answer));
    await join(bob, roomId);
    expect(await come()).toBe('403 M_GUEST_ACCESS_FORBIDDEN');
    await access('can_join');
    expect(await come()).toBe('200');
    await access('forbidden');
    await eventually(async () => {
      const { joined } = await ok<{ joined: object }>(alice, 'GET', `/rooms/${roomId}/joined_members`);
      return !Object.hasOwn(joined, String(guest['user_id'])) && Object.keys(joined).length === 2;
    });
    const { chunk: left } = await ok<Page>(alice, 'GET', `/rooms/${roomId}/members?membership=leave`);
    expect(left.map((event) => [event.sender, event.state_key])).toEqual([[guest['user_id'], guest['user_id']]]);
    expect(await come()).toBe('403 M_GUEST_ACCESS_FORBIDDEN');
  });

  it('a guest who cannot leave a room that is closed to them keeps no other in', async () => {
    const guestAccess = { type: 'm.room.guest_access', state_key: '', content: { guest_access: 'can_join' } };
    const roomId = await createRoom(alice, { preset: 'public_chat', initial_state: [guestAccess] });
    const guests: string[] = [];
    for (let n = 0; n < 3; n++) {
      const { body: guest } = await homeserver.request('POST', '/register?kind=guest', {});
      await homeserver.request('POST', `/rooms/${roomId}/join`, {}, String(guest['access_token']));
      guests.push(String(guest['user_id']));
    }
    const persister = homeserver.server.service(EventPersister);
    const send = persister.send.bind(persister);
    let kept: string | undefined;
    const refusing = jest.spyOn(persister, 'send').mockImplementation((draft) => {
      if (draft.content['membership'] === 'leave' && draft.stateKey === (kept ??= draft.stateKey))
        return Promise.reject(MatrixError.forbidden('No'));
      return send(draft);
    });
    await setState(alice, roomId, 'm.room.guest_access', { guest_access: 'forbidden' });
    await eventually(async () => {
      const { joined } = await ok<{ joined: object }>(alice, 'GET', `/rooms/${roomId}/joined_members`);
      return Object.keys(joined).length === 2;
    });
    refusing.mockRestore();
    expect(guests).toContain(kept);
  });

  it('a new room cannot have state that no room can be given', async () => {
    const make = async (type: string, content: object, more: object = {}): Promise<string> =>
      outcome(await alice.request('POST', '/createRoom', { initial_state: [{ type, content }], ...more }));
    expect(await make('m.room.server_acl', { deny: ['*'] })).toBe('400 M_BAD_JSON');
    expect(await make('m.room.server_acl', { allow: ['*'], deny: ['evil.example'] })).toBe('200');
    const named = (content: object, more?: object): Promise<string> => make('m.room.canonical_alias', content, more);
    expect(await named({ alt_aliases: ['x'] })).toBe('400 M_INVALID_PARAM');
    await createRoom(alice, { room_alias_name: 'of_another' });
    const [another, away] = ['#of_another:rookery.test', '#room:elsewhere.test'];
    for (const alias of [another, away, '#of_none:rookery.test'])
      for (const content of [{ alias }, { alt_aliases: [alias] }])
        expect([content, await named(content)]).toEqual([content, '400 M_BAD_ALIAS']);
    const own = { room_alias_name: 'own' };
    expect(await named({ alias: '#own:rookery.test', alt_aliases: [away] }, own)).toBe('400 M_BAD_ALIAS');
    expect(await named({ alias: '#own:rookery.test' }, own)).toBe('200');
    expect(await named({})).toBe('200');
  });

  it('whoever shows a signed invite that there is not is not let in', async () => {
    const roomId = await createRoom(alice);
    const claim = { sender: alice.userId, mxid: bob.userId, token: 't', signatures: {} };
    const come = async (signed: unknown): Promise<string> =>
      outcome(await bob.request('POST', `/join/${roomId}`, { third_party_signed: signed }));
    expect(await come(claim)).toBe('403 M_FORBIDDEN');
    expect(await come({ ...claim, mxid: carol.userId })).toBe('403 M_FORBIDDEN');
    expect(await come({ ...claim, sender: '@alice:elsewhere.test' })).toBe('403 M_FORBIDDEN');
    expect(await come({ ...claim, token: undefined })).toBe('400 M_BAD_JSON');
    expect(await come('x')).toBe('400 M_BAD_JSON');
    await act(alice, 'invite', roomId, bob);
    expect(await come(claim)).toBe('200');
    const { joined_rooms: rooms } = await ok<{ joined_rooms: string[] }>(bob, 'GET', '/joined_rooms');
    expect(rooms).toContain(roomId);
  });
});
