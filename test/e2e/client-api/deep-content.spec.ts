import { createTestHomeserver, FakeClock, type TestHomeserver, type TestUser } from '@rookery/testing';

/** Content whose innermost object or list lies so many levels below it. */
function nested(levels: number): Record<string, unknown> {
  let value: unknown = 'innermost';
  for (let level = levels + 1; level > 0; level--) value = level % 2 === 0 ? [value] : { a: value };
  return value as Record<string, unknown>;
}

describe.each(['sqlite', 'postgres'] as const)('content that other servers could not read (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      ...{ database, clock: new FakeClock(Date.now()) },
      settings: { max_event_delay_duration: '1h' },
    });
    alice = await homeserver.registerUser('alice');
  });
  afterAll(() => homeserver?.stop());

  const room = async (settings: object = {}): Promise<string> => {
    const { status, body } = await alice.request('POST', '/createRoom', settings);
    expect(status).toBe(200);
    return String(body['room_id']);
  };
  let transaction = 0;

  it.each(['5', '11', '12'])('is refused wherever an event is made, version %s', async (version) => {
    const roomId = await room({ room_version: version });
    const target = await alice.request('PUT', `/rooms/${roomId}/send/x/${transaction++}`, {});
    const attempts: readonly (readonly [method: 'POST' | 'PUT', path: string, body: (inner: object) => object])[] = [
      ['PUT', `/rooms/${roomId}/send/x/`, (inner) => inner],
      ['PUT', `/rooms/${roomId}/send/x?org.matrix.msc4140.delay=1000&`, (inner) => inner],
      ['PUT', `/rooms/${roomId}/state/x/key`, (inner) => inner],
      ['PUT', `/rooms/${roomId}/state/x/later?org.matrix.msc4140.delay=1000`, (inner) => inner],
      ['PUT', `/rooms/${roomId}/redact/${String(target.body['event_id'])}/`, (inner) => inner],
      ['POST', '/createRoom', (inner) => ({ initial_state: [{ type: 'x', content: inner }] })],
      ['POST', '/createRoom', (inner) => ({ creation_content: inner })],
    ];
    for (const [method, path, body] of attempts) {
      const at = path.endsWith('/') || path.endsWith('&') ? withTransaction(path, transaction++) : path;
      const refused = await alice.request(method, at, body(nested(101)));
      expect([path, refused.status, refused.body['errcode']]).toEqual([path, 400, 'M_BAD_JSON']);
      expect(refused.body['error']).toMatch(/nested too deeply/);
      const again = path.endsWith('/') || path.endsWith('&') ? withTransaction(path, transaction++) : path;
      expect([path, (await alice.request(method, again, body(nested(100)))).status]).toEqual([path, 200]);
    }
  });
});

/** A path of the client-server API with a transaction id where it belongs. */
function withTransaction(path: string, id: number): string {
  return path.endsWith('/') ? `${path}${id}` : path.replace('?', `/${id}?`).slice(0, -1);
}
