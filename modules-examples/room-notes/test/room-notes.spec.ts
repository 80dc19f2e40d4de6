import { fileURLToPath } from 'node:url';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));

describe.each(['sqlite', 'postgres'] as const)('a module with entities (%s)', (database) => {
  let server: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let path: string;
  beforeAll(async () => {
    server = await createTestHomeserver({ database, settings: { modules: [{ module }] } });
    [alice, bob] = [await server.registerUser('alice'), await server.registerUser('bob')];
    const created = await alice.request<{ room_id: string }>('POST', '/createRoom', {});
    path = `/_synapse/client/notes/${encodeURIComponent(created.body.room_id)}`;
  });
  afterAll(() => server?.stop());

  const write = async (text: string): Promise<number> => {
    const { status, body } = await alice.request<{ id: number }>('POST', path, { text });
    expect({ status, body }).toMatchObject({ status: 200, body: { text, pinned: false, user_id: alice.userId } });
    return body.id;
  };

  it('stores, finds and changes rows, and keeps them over a restart', async () => {
    const ids = await Promise.all(['a', 'b', 'c', "d 'e' ?"].map(write));
    expect(new Set(ids).size).toBe(4);
    expect(await alice.request('PUT', `${path}/${ids[1]}/pin`)).toMatchObject({ status: 200, body: { pinned: true } });
    await server.restart();
    const { body } = await alice.request<{ notes: { id: number; pinned: boolean; created_ts: number }[] }>('GET', path);
    expect(body.notes[0]).toMatchObject({ id: ids[1], text: 'b', pinned: true, created_ts: expect.any(Number) });
    expect(body.notes.map(({ id }) => id).sort()).toEqual([...ids].sort());
  });

  it('writes all of a transaction or nothing', async () => {
    const ids = await Promise.all(['1', '2', '3', '4'].map(write));
    const statuses: number[] = [];
    for (const id of ids) statuses.push((await alice.request('PUT', `${path}/${id}/pin`)).status);
    expect(statuses).toEqual([200, 200, 400, 400]);
    const { body } = await alice.request<{ notes: { pinned: boolean }[] }>('GET', path);
    expect(body.notes.filter(({ pinned }) => pinned)).toHaveLength(3);
    expect(await alice.request('PUT', `${path}/987654/pin`)).toMatchObject({ status: 404 });
    for (const id of ['2147483648', '-2147483649', '9'.repeat(15)])
      expect(await alice.request('PUT', `${path}/${id}/pin`)).toMatchObject({ status: 404 });
    expect(await alice.request('PUT', `${path}/x/pin`)).toMatchObject({ status: 400 });
    expect(await alice.request('POST', path, { text: 'a\0b' })).toMatchObject({ status: 400 });
    await write('two\nlines');
  });

  it('is for those who are in the room', async () => {
    expect(await bob.request('GET', path)).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    expect(await bob.request('POST', path, { text: 'x' })).toMatchObject({ status: 403 });
  });
});

describe('a module with entities in several processes', () => {
  let server: TestHomeserver;
  let alice: TestUser;
  let path: string;
  beforeAll(async () => {
    server = await createTestHomeserver({ database: 'postgres', processes: 3, settings: { modules: [{ module }] } });
    alice = await server.registerUser('alice');
    const created = await alice.request<{ room_id: string }>('POST', '/createRoom', {});
    path = `/_synapse/client/notes/${encodeURIComponent(created.body.room_id)}`;
  });
  afterAll(() => server?.stop());

  interface Note {
    readonly id: number;
    readonly text: string;
    readonly pinned: boolean;
  }
  /** Asks one of the processes. */
  const at = async <T>(
    place: number,
    method: string,
    what = '',
    body?: object,
  ): Promise<{ status: number; body: T }> => {
    const { port } = server.servers[place % server.servers.length]!.addresses[0]!;
    const response = await fetch(`http://127.0.0.1:${port}${path}${what}`, {
      method,
      headers: { authorization: `Bearer ${alice.accessToken}`, 'content-type': 'application/json' },
      ...(method === 'GET' ? {} : { body: JSON.stringify(body ?? {}) }),
    });
    return { status: response.status, body: (await response.json()) as T };
  };

  it('has one set of tables, and transactions that do not cross each other', async () => {
    const texts = Array.from({ length: 12 }, (_, i) => `note ${i}`);
    const written = await Promise.all(texts.map((text, i) => at<Note>(i, 'POST', '', { text })));
    expect(written.map(({ status, body }) => [status, body.text])).toEqual(texts.map((text) => [200, text]));
    const ids = written.map(({ body }) => body.id);
    expect(new Set(ids).size).toBe(texts.length);
    for (let place = 0; place < server.servers.length; place++) {
      const { notes } = (await at<{ notes: Note[] }>(place, 'GET')).body;
      expect(notes.map(({ text }) => text).sort()).toEqual(texts.toSorted());
    }
    // Each looks how many there are once it has pinned its own: only one behind the other can three be kept to.
    const statuses = await Promise.all(ids.map(async (id, i) => (await at(i, 'PUT', `/${id}/pin`)).status));
    expect(statuses.toSorted()).toEqual([...Array(3).fill(200), ...Array(texts.length - 3).fill(400)]);
    for (let place = 0; place < server.servers.length; place++) {
      const { notes } = (await at<{ notes: Note[] }>(place, 'GET')).body;
      expect(notes.filter(({ pinned }) => pinned)).toHaveLength(3);
    }
  });
});
