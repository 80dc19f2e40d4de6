import { eventually } from '@rookery/testing';
import { probe, type ProbeServer, startProbe } from './probe-server.js';

interface Event {
  readonly eventId: string;
  readonly type: string;
  readonly stateKey?: string;
  readonly content: Record<string, unknown>;
}

describe.each(['sqlite', 'postgres'] as const)('rooms by the module API (%s)', (kind) => {
  let server: ProbeServer;
  let roomId: string;
  const ann = '@ann:rookery.test';
  const ben = '@ben:rookery.test';

  beforeAll(async () => {
    server = await startProbe(kind);
    await server.registerUser('ann');
    await server.registerUser('ben');
  });
  afterAll(() => server?.stop());
  beforeEach(() => probe.reset());

  const value = async (path: string, ...args: unknown[]): Promise<unknown> => {
    const called = await server.call(path, ...args);
    expect(called).toMatchObject({ status: 200 });
    return called.result;
  };
  const membershipOf = async (userId: string): Promise<unknown> => {
    const [event] = (await value('getRoomState', roomId, [['m.room.member', userId]])) as Event[];
    return event?.content['membership'];
  };

  it('a module makes a room for a user', async () => {
    const config = { name: 'The nest', preset: 'public_chat', room_alias_name: 'nest', topic: 'twigs' };
    const made = (await value('createRoom', ann, config, { creatorJoinProfile: { displayName: 'Host' } })) as {
      roomId: string;
      roomAlias: string;
    };
    roomId = made.roomId;
    expect(made.roomAlias).toBe('#nest:rookery.test');
    const [own] = (await value('getRoomState', roomId, [['m.room.member', ann]])) as Event[];
    expect(own?.content).toEqual({ membership: 'join', displayname: 'Host' });
    expect(await server.call('createRoom', ann, { preset: 'chaos' })).toMatchObject({ status: 400 });
    expect(await server.call('createRoom', '@x:else.where', {})).toMatchObject({ status: 400 });
    expect(await server.call('createRoom', '@none:rookery.test', {})).toMatchObject({ status: 404 });
  });

  it('reads state: all, by type, by key', async () => {
    const all = (await value('getRoomState', roomId)) as Event[];
    expect(all.map(({ type }) => type)).toEqual(
      expect.arrayContaining(['m.room.create', 'm.room.topic', 'm.room.name']),
    );
    const some = (await value('getStateEventsInRoom', roomId, ['m.room.topic', ['m.room.name', '']])) as Event[];
    expect(some.map(({ type }) => type).sort()).toEqual(['m.room.name', 'm.room.topic']);
    expect(await value('getRoomState', roomId, [['m.room.member', '@none:rookery.test']])).toEqual([]);
    expect(await value('getRoomState', '!nowhere:rookery.test')).toEqual([]);
  });

  it('sends events as a local user, and asks no module about them', async () => {
    probe.answers.checkEventForSpam = () => 'M_FORBIDDEN';
    const event = { roomId, type: 'm.room.message', sender: ann, content: { msgtype: 'm.text', body: 'hello' } };
    const sent = (await value('createAndSendEventIntoRoom', event)) as Event;
    expect(sent).toMatchObject({ type: 'm.room.message', content: { body: 'hello' }, sender: ann });
    expect(probe.fired.map(({ name }) => name)).not.toContain('checkEventForSpam');
    const state = { roomId, type: 'm.room.topic', stateKey: '', sender: ann, content: { topic: 'leaves' } };
    expect(await value('createAndSendEventIntoRoom', state)).toMatchObject({
      stateKey: '',
      content: { topic: 'leaves' },
    });
    // Rules of the protocol hold: ben is not in the room.
    expect(await server.call('createAndSendEventIntoRoom', { ...event, sender: ben })).toMatchObject({ status: 403 });
    expect(await server.call('createAndSendEventIntoRoom', { ...event, sender: '@x:else.where' })).toMatchObject({
      status: 400,
    });
    expect(await server.call('createAndSendEventIntoRoom', { ...event, content: 'text' })).toMatchObject({
      status: 400,
    });
    const large = { ...event, content: { body: 'x'.repeat(70_000) } };
    expect(await server.call('createAndSendEventIntoRoom', large)).toMatchObject({ status: 413 });
  });

  it('keeps its own copy of what a module sends', async () => {
    const content: Record<string, unknown> = { msgtype: 'm.text', body: 'before' };
    const sent = await probe.api!.createAndSendEventIntoRoom({ roomId, type: 'm.room.message', sender: ann, content });
    content['body'] = 'after';
    expect(sent.content['body']).toBe('before');
    expect(Object.isFrozen(sent.content)).toBe(true);
  });

  it('a module changes memberships', async () => {
    expect(await value('updateRoomMembership', ann, ben, roomId, 'invite')).toMatchObject({
      stateKey: ben,
      content: { membership: 'invite' },
    });
    const join = { reason: 'curious', 'org.example.x': 1 };
    expect(await value('updateRoomMembership', ben, ben, roomId, 'join', join)).toMatchObject({
      content: { membership: 'join', reason: 'curious', 'org.example.x': 1 },
    });
    expect(await value('usersShareRoom', ann, ben)).toBe(true);
    await value('updateRoomMembership', ann, ben, roomId, 'leave');
    expect(await membershipOf(ben)).toBe('leave');
    await value('updateRoomMembership', ann, ben, roomId, 'ban');
    expect(await membershipOf(ben)).toBe('ban');
    await value('updateRoomMembership', ann, ben, roomId, 'leave');
    expect(await membershipOf(ben)).toBe('leave');
    expect(await value('usersShareRoom', ann, ben)).toBe(false);
    await value('createAndSendEventIntoRoom', {
      ...{ roomId, type: 'm.room.member', stateKey: ben, sender: ben },
      content: { membership: 'join' },
    });
    expect(await membershipOf(ben)).toBe('join');
    expect(await server.call('updateRoomMembership', ann, ben, roomId, 'join')).toMatchObject({ status: 403 });
    expect(await server.call('updateRoomMembership', ann, ben, roomId, 'nonsense')).toMatchObject({ status: 400 });
  });

  it('a module looks up aliases', async () => {
    expect(await value('lookupRoomAlias', '#nest:rookery.test')).toEqual({ roomId, servers: ['rookery.test'] });
    expect(await server.call('lookupRoomAlias', '#none:rookery.test')).toMatchObject({ status: 404 });
    expect(await value('getCanonicalRoomAlias', roomId)).toBe('#nest:rookery.test');
    expect(await value('getCanonicalRoomAlias', '!nowhere:rookery.test')).toBeNull();
  });

  it('lists rooms in the directory', async () => {
    expect(await value('publicRoomListManager.roomIsInPublicRoomList', roomId)).toBe(false);
    const { accessToken: token } = (await value('registerDevice', ben)) as { accessToken: string };
    await value('publicRoomListManager.addRoomToPublicRoomList', roomId);
    expect(await value('publicRoomListManager.roomIsInPublicRoomList', roomId)).toBe(true);
    const listed = await server.request<{ chunk: { room_id: string }[] }>('GET', '/publicRooms', undefined, token);
    expect(listed.body.chunk.map((room) => room.room_id)).toEqual([roomId]);
    await value('publicRoomListManager.removeRoomFromPublicRoomList', roomId);
    expect(await value('publicRoomListManager.roomIsInPublicRoomList', roomId)).toBe(false);
    expect(await server.call('publicRoomListManager.addRoomToPublicRoomList', '!nowhere:rookery.test')).toMatchObject({
      status: 404,
    });
  });

  it('a module blocks a room, and nobody joins it', async () => {
    const carl = await server.registerUser('carl');
    await value('setRoomBlocked', roomId, true);
    expect(await carl.request('POST', `/join/${encodeURIComponent(roomId)}`, {})).toMatchObject({ status: 403 });
    await value('setRoomBlocked', roomId, false);
    expect(await carl.request('POST', `/join/${encodeURIComponent(roomId)}`, {})).toMatchObject({ status: 200 });
    expect(await server.call('setRoomBlocked', 'nonsense', true)).toMatchObject({ status: 400 });
  });

  it('deletes a room with everything in it', async () => {
    const { roomId: doomed } = (await value('createRoom', ann, { invite: [ben] })) as { roomId: string };
    await value('deleteRoom', doomed);
    await eventually(async () => ((await server.call('deleteRoom', doomed)).status === 404 ? true : undefined));
    expect(await value('getRoomState', doomed)).toEqual([]);
    expect(await value('usersShareRoom', ann, ben)).toBe(true);
    expect(await server.call('deleteRoom', 'nonsense')).toMatchObject({ status: 400 });
  });

  it('withholds the media of a room, and gives it back', async () => {
    const user = await server.registerUser('painter');
    const { body: room } = await user.request<{ room_id: string }>('POST', '/createRoom', {});
    const upload = async (content: string): Promise<string> => {
      const response = await fetch(`${server.baseUrl}/_matrix/media/v3/upload`, {
        method: 'POST',
        headers: { authorization: `Bearer ${user.accessToken}`, 'content-type': 'text/plain' },
        body: content,
      });
      return ((await response.json()) as { content_uri: string }).content_uri;
    };
    const statusOf = async (uri: string): Promise<number> => {
      const { status } = await user.request('GET', uri.replace('mxc://', '/_matrix/client/v1/media/download/'));
      return status;
    };
    const [shown, thumbnail, other] = await Promise.all([upload('shown'), upload('small'), upload('elsewhere')]);
    await user.request('PUT', `/rooms/${encodeURIComponent(room.room_id)}/send/m.room.message/1`, {
      ...{ msgtype: 'm.image', body: 'x', url: shown, info: { thumbnail_url: thumbnail } },
    });
    expect(await value('setRoomMediaQuarantined', room.room_id, true)).toBe(2);
    expect(await value('setRoomMediaQuarantined', room.room_id, true)).toBe(0);
    expect(await Promise.all([shown, thumbnail, other].map((uri) => statusOf(uri ?? '')))).toEqual([404, 404, 200]);
    expect(await value('setRoomMediaQuarantined', room.room_id, false)).toBe(2);
    expect(await statusOf(shown ?? '')).toBe(200);
    expect(await server.call('setRoomMediaQuarantined', 'nonsense', true)).toMatchObject({ status: 400 });
  });

  it('tells of each new event once, in order, with the state after it; a restart loses and repeats nothing', async () => {
    const told = (): string[] =>
      probe.fired
        .filter(({ name }) => name === 'onNewEvent')
        .map(({ args }) => (args[0] as Event).content['body'])
        .filter((body): body is string => typeof body === 'string' && body.startsWith('n'));
    let topic: unknown;
    probe.answers.onNewEvent = async (event: Event, state: { get(type: string): Promise<Event | undefined> }) => {
      if (event.type === 'm.room.topic') topic = (await state.get('m.room.topic'))?.content['topic'];
    };
    const send = (body: string): Promise<unknown> =>
      value('createAndSendEventIntoRoom', {
        ...{ roomId, type: 'm.room.message', sender: ann },
        content: { msgtype: 'm.text', body },
      });
    for (const body of ['n1', 'n2', 'n3']) await send(body);
    await eventually(() => (told().length === 3 ? true : undefined));
    await value('createAndSendEventIntoRoom', {
      ...{ roomId, type: 'm.room.topic', stateKey: '', sender: ann },
      content: { topic: 'new' },
    });
    // Topics of the tests before may still be on their way.
    await eventually(() => (topic === 'new' ? true : undefined));
    await server.restart();
    await send('n4');
    await eventually(() => (told().length === 4 ? true : undefined));
    expect(told()).toEqual(['n1', 'n2', 'n3', 'n4']);
  });

  it('a stop does not wait for slow modules; what they were not told of they are told after the start', async () => {
    const told: unknown[] = [];
    let begin = (): void => {};
    const allSent = new Promise<void>((resolve) => (begin = resolve));
    probe.answers.onNewEvent = async (event: Event) => {
      const { body } = event.content;
      if (typeof body !== 'string' || !body.startsWith('slow')) return;
      await allSent;
      await new Promise((resolve) => setTimeout(resolve, 600));
      told.push(body);
    };
    const bodies = Array.from({ length: 12 }, (_, i) => `slow ${i}`);
    for (const body of bodies) {
      await value('createAndSendEventIntoRoom', {
        ...{ roomId, type: 'm.room.message', sender: ann },
        content: { msgtype: 'm.text', body },
      });
    }
    begin();
    await eventually(() => (told.length > 0 ? true : undefined));
    await server.server.stop();
    expect(told.length).toBeLessThan(bodies.length);
    await server.restart();
    await eventually(() => (told.length >= bodies.length ? true : undefined));
    expect(told).toEqual(bodies);
  });
});
