import { Database } from '@rookery/database';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

const pusher = (pushkey: string): object => ({
  ...{ kind: 'http', app_id: 'app', pushkey, app_display_name: 'A', device_display_name: 'D', lang: 'en' },
  data: { url: 'https://push.example.org/_matrix/push/v1/notify' },
});
const hashKey = { key: 'MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI' };

/** Stops the first write of a name before the end of its transaction, until another write has begun. */
function holdUp(database: Database, name: string, other: string): Promise<void> {
  const { write } = database;
  let begin = (): void => undefined;
  const begun = new Promise<void>((resolve) => (begin = resolve));
  return new Promise((reached) => {
    database.write = ((work: Parameters<typeof write>[0], options: Parameters<typeof write>[1]) => {
      if (options?.name === other) {
        database.write = write;
        const writing = write.call(database, work, options);
        begin();
        return writing;
      }
      if (options?.name !== name) return write.call(database, work, options);
      return write.call(
        database,
        async (tx) => {
          const result = await work(tx);
          reached();
          await begun;
          return result;
        },
        options,
      );
    }) as typeof write;
  });
}

describe.each(['sqlite', 'postgres'] as const)('what is stored while its session ends (%s)', (kind) => {
  let server: TestHomeserver;
  let database: Database;
  let count = 0;

  beforeAll(async () => {
    server = await createTestHomeserver({ database: kind });
    database = server.server.service(Database);
  });
  afterAll(() => server.stop());

  /** Sends a request that writes while a logout is about to be durable. @returns its status */
  const during = async (user: TestUser, write: string, send: () => Promise<{ status: number }>): Promise<number> => {
    const reached = holdUp(database, 'session_close_devices', write);
    const logout = user.request('POST', '/logout', {});
    await reached;
    const sent = send();
    expect((await logout).status).toBe(200);
    return (await sent).status;
  };

  it('is no pusher', async () => {
    const user = await server.registerUser(`pushed${count++}`);
    expect(await during(user, 'set_pusher', () => user.request('POST', '/pushers/set', pusher('late')))).toBe(401);
    expect(await database.query('SELECT pushkey FROM pushers WHERE user_name = ?', [user.userId])).toEqual([]);
  });

  it('is no key of its device', async () => {
    const user = await server.registerUser(`keyed${count++}`);
    const keys = { one_time_keys: { 'signed_curve25519:AAAA': { ...hashKey, signatures: {} } } };
    expect(await during(user, 'keys_upload', () => user.request('POST', '/keys/upload', keys))).toBeGreaterThanOrEqual(
      400,
    );
    expect(await database.query('SELECT key_id FROM e2e_one_time_keys_json WHERE user_id = ?', [user.userId])).toEqual(
      [],
    );
  });
});
